import { newId } from '../../../lib/ids.ts'
import { Operation } from '../../../models/operations.ts'
import { growthRows, type Point, type Row, timed } from '../measure.ts'
import { cpuMs, type Stack } from '../stack.ts'
import { withStored } from './stored.ts'

const name = 'bench-waiting'
const idleMs = 10_000

/** Inserts that many accepted operations, which no dispatcher starts within an hour. */
export async function putWaiting(tenant_id: string, count: number): Promise<string[]> {
  const created_at = new Date(Date.now() + 3_600_000)
  const ids = Array.from({ length: count }, newId)
  const documents = ids.map((_id) => ({
    _id,
    tenant_id,
    resource_kind: 'container',
    resource_id: newId(),
    resource_name: name,
    verb: 'stop', // not of the line of what is accepted beside them
    input: {},
    state: 'pending',
    open: true,
    undispatched: true,
    workflow_id: `container-stop-${_id}`,
    supersedes: null,
    requested_by: null,
    cancel_requested_at: null,
    before: {},
    step: null,
    error: null,
    started_at: null,
    ended_at: null,
    created_at,
    updated_at: created_at,
  }))
  if (count) await Operation.collection.insertMany(documents as never)
  return ids
}

export const removeWaiting = async (): Promise<void> =>
  void (await Operation.collection.deleteMany({ resource_name: name }))

/**
 * The time to accept a change while growing numbers of operations wait, and the CPU time of the idle platform
 * meanwhile.
 */
export async function growingBacklog(stack: Stack, sizes = [0, 1_000, 10_000], asks = 60): Promise<Row[]> {
  const pids = await stack.pids()
  return withStored(stack, async ({ id, tenant_id }) => {
    const [accepted, idle]: [Point[], Point[]] = [[], []]
    let waiting = 0
    try {
      for (const size of sizes) {
        await putWaiting(tenant_id, size - waiting)
        waiting = size
        const figures: number[] = []
        for (let ask = 0; ask < asks; ask++) figures.push(await accept(stack, id, 16 + (ask % 8)))
        accepted.push({ size, figures })
        idle.push({ size, figures: [await idleCpu(pids)] })
      }
    } finally {
      await removeWaiting()
    }
    return [
      ...growthRows((n) => `accepted while ${n} operations wait`, 'ms', accepted, 0.1),
      ...growthRows((n) => `cpu of all roles in an idle second while ${n} operations wait`, 'ms', idle, 0.1),
    ]
  })
}

/** Milliseconds until the answer; returns when the operation has ended. */
async function accept(stack: Stack, id: string, memory_mib: number): Promise<number> {
  let location = ''
  const ms = await timed(async () => {
    const { headers, status } = await stack.request('PUT', `/api/v1/containers/${id}`, { memory_mib })
    if (status !== 202) throw new Error(`not accepted: ${status}`)
    location = String(headers['operation-location'])
  })
  await stack.request('GET', `${location}?wait=60`)
  return ms
}

async function idleCpu(pids: Record<string, number>): Promise<number> {
  const sum = (): number => Object.values(cpuMs(pids)).reduce((all, ms) => all + ms, 0)
  const before = sum()
  const ms = await timed(() => new Promise((resolve) => setTimeout(resolve, idleMs)))
  return (sum() - before) / (ms / 1_000)
}
