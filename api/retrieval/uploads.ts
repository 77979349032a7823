import { Problem, Unavailable } from '../../lib/problem.ts'
import { addPart, findUpload, partAtLeast, partBytes } from '../../models/retrieval/uploads.ts'
import type { FindUpload, Part } from '../uploads.ts'
import { pieces } from '../pieces.ts'

// Each request that sends a document has one part of it in memory, and a copy of that while it is stored: 16 MiB.
const atOnce = 16
const ofTenantAtOnce = 4

/** Contents of documents. The bytes become blobs, part by part. */
export const documentUpload: FindUpload = async (id, token) => {
  const document = await findUpload(id, token)
  if (!document) return null
  const { tenant_id, operation_id, upload, ended_upload } = document
  if (!upload) {
    const { size_bytes, whole } = ended_upload ?? { size_bytes: 0, whole: false }
    const done = async (): Promise<number> => size_bytes
    return {
      id,
      size_bytes,
      operation_id,
      isOver: !whole,
      offset: done,
      add: done,
      noteWhole: async () => {},
    }
  }
  const { size_bytes, received, expires_at } = upload
  return {
    id,
    size_bytes,
    operation_id,
    isOver: received < size_bytes && expires_at <= new Date(),
    offset: async () => received,
    add: (part) =>
      inPlace(tenant_id, () =>
        store(part, (offset, bytes) => addPart({ _id: id, tenant_id, operation_id }, offset, bytes)),
      ),
    noteWhole: async () => {}, // it is if all bytes are there
  }
}

/** Stores the bytes part by part. Returns the offset of the first byte that is not stored. Throws `part_too_small`. */
export async function store(
  { offset, left, bytes }: Pick<Part, 'offset' | 'left'> & { bytes: AsyncIterable<Buffer> },
  add: (offset: number, bytes: Buffer) => Promise<boolean>,
): Promise<number> {
  const end = offset + left
  for await (const part of pieces(bytes, partBytes)) {
    if (part.length < partAtLeast && offset + part.length < end) throw tooSmall()
    if (!(await add(offset, part))) return offset
    offset += part.length
  }
  return offset
}

const tooSmall = (): Problem =>
  new Problem(
    422,
    'part_too_small',
    'The part is too small',
    `Only the last part of a document may have fewer than ${partAtLeast / 1024} KiB`,
  )

const open = new Map<string, number>()
let all = 0

/** Throws Unavailable if too many requests send documents, of all tenants or of this one. */
async function inPlace<T>(tenant_id: string, work: () => Promise<T>): Promise<T> {
  const its = open.get(tenant_id) ?? 0
  if (all >= atOnce || its >= ofTenantAtOnce)
    throw new Unavailable('Too many documents are being sent at once: try again')
  all++
  open.set(tenant_id, its + 1)
  try {
    return await work()
  } finally {
    all--
    const left = (open.get(tenant_id) ?? 1) - 1
    if (left > 0) open.set(tenant_id, left)
    else open.delete(tenant_id)
  }
}
