import '../../../models/index.ts'
import { newId } from '../../../lib/ids.ts'
import { Container } from '../../../models/compute/containers.ts'
import { Reservation } from '../../../models/compute/reservations.ts'
import { recount } from '../../../models/counters.ts'
import { connectDatabase, disconnectDatabase } from '../../../models/database.ts'
import type { Stack } from '../stack.ts'

// Containers that are inserted into the database without the models: more than an engine could run here.

const atOnce = 1_000
const prefix = 'bench-growth-'

type Stored = Record<string, unknown>

/** The stored documents of a stopped container, from which the others are copied. */
export interface Template {
  id: string
  tenant_id: string
  container: Stored
  reservation: Stored
}

/** Connects the models while `work` runs; afterwards removes what `putContainers` inserted. */
export async function withStored<T>(stack: Stack, work: (template: Template) => Promise<T>): Promise<T> {
  const { id } = await stack.finish('POST', '/api/v1/containers', {
    name: prefix + newId(),
    image: 'busybox',
    cpu_cores: 0.1,
    memory_mib: 16,
    start: false,
  })
  await connectDatabase({
    KEELSON_MONGODB_URL: stack.mongodbUrl,
    KEELSON_MASTER_KEY_FILE: stack.masterKeyFile,
  })
  try {
    const container: Stored = (await Container.collection.findOne({ _id: id as never })) ?? {}
    const reservation: Stored = (await Reservation.collection.findOne({ _id: id as never })) ?? {}
    const template = { id, tenant_id: String(container['tenant_id']), container, reservation }
    try {
      return await work(template)
    } finally {
      await removeContainers(template)
    }
  } finally {
    await disconnectDatabase()
    await stack.finish('DELETE', `/api/v1/containers/${id}`)
  }
}

/** Inserts that many containers with these fields; on a host, each with its reservation. Returns their ids. */
export async function putContainers(
  { container, reservation }: Template,
  count: number,
  fields: { host_id: string | null; [field: string]: unknown },
): Promise<string[]> {
  const ids: string[] = []
  while (ids.length < count) {
    const some = Array.from({ length: Math.min(atOnce, count - ids.length) }, newId)
    const documents = some.map((id) => ({ ...container, _id: id, name: prefix + id, ...fields }))
    await Container.collection.insertMany(documents as never)
    const { host_id } = fields
    if (host_id !== null)
      await Reservation.collection.insertMany(
        some.map((id) => ({ ...reservation, _id: id, owner_id: id, host_id })) as never,
      )
    ids.push(...some)
  }
  return ids
}

/** Updates the counts, as the models would have. */
export const countContainers = ({ tenant_id }: Template): Promise<void> => recount(Container, tenant_id)

async function removeContainers(template: Template): Promise<void> {
  const { id, tenant_id } = template
  const copies = { tenant_id, _id: { $ne: id as never }, name: { $regex: `^${prefix}` } }
  const ids = await Container.collection.find(copies, { projection: { _id: 1 } }).toArray()
  for (let from = 0; from < ids.length; from += atOnce) {
    const some = { _id: { $in: ids.slice(from, from + atOnce).map(({ _id }) => _id) } }
    await Container.collection.deleteMany(some)
    await Reservation.collection.deleteMany(some)
  }
  await countContainers(template)
}
