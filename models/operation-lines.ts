import { onAccepted, Operation, type OperationDocument } from './operations.ts'
import { everyTenant } from './tenant-scope.ts'

// A line: the operations of one tenant, of one verb on one kind of instance. A few of a line are under way, and the others
// wait in MongoDB, oldest first. So a tenant that asks for thousands of containers at once does not fill the queues and
// processors that other tenants' operations need, too.

/** Only these wait: their verbs take seconds, and none waits for another one of its line. */
const kinds = new Set(['container', 'microvm', 'vm'])

type Of = Pick<OperationDocument, 'tenant_id' | 'resource_kind' | 'verb'>

const nameOf = ({ tenant_id, resource_kind, verb }: Of): string => `${tenant_id} ${resource_kind} ${verb}`

/** Of the line, and not held. Children are their parents' business. */
const underWay = ({ tenant_id, resource_kind, verb }: Of) => ({
  tenant_id,
  resource_kind,
  verb,
  open: true as const,
  held_in: { $exists: false },
  parent_id: { $exists: false },
})

let most = Number.POSITIVE_INFINITY

/** How many operations of a line are under way at once. The api and worker roles set it. */
export const useLines = (atOnce: number): void => {
  most = atOnce
}

/**
 * Lets an operation that is to be started wait, if enough of its line are under way. Returns whether it waits. One whose
 * cancellation is requested does not: its workflow ends it.
 */
export async function waitsInLine(operation: OperationDocument): Promise<boolean> {
  const { _id, resource_kind, cancel_requested_at } = operation
  if (!kinds.has(resource_kind) || cancel_requested_at || !Number.isFinite(most)) return false
  // Ids are in the order of acceptance. Of many that are accepted at once, the first ones go ahead.
  const ahead = { ...underWay(operation), _id: { $lt: _id } }
  // A count would be an aggregation, which costs more.
  if (!(await Operation.exists(ahead).skip(most - 1))) return false
  const { modifiedCount } = await Operation.updateOne(
    { _id, tenant_id: operation.tenant_id, undispatched: true, cancel_requested_at: null },
    { $set: { held_in: nameOf(operation), step: 'waiting for its turn' }, $unset: { undispatched: 1 } },
  )
  return modifiedCount > 0
}

/** `start` is called after the commit of each operation that does not wait. The dispatcher starts one whose line cannot be read. */
export const onStartable = (start: (operation: OperationDocument) => void): void =>
  onAccepted((operation) => {
    waitsInLine(operation).then(
      (waits) => waits || start(operation),
      () => {},
    )
  })

/**
 * Takes the oldest operation that waits in the line of `ended`, which makes room: it is to be started now. Null if none
 * waits. Most lines are empty, and a read finds that for less than a write, which waits for MongoDB's journal even if it changes
 * nothing.
 */
export async function nextInLine(ended: Of): Promise<OperationDocument | null> {
  if (!kinds.has(ended.resource_kind)) return null
  const line = nameOf(ended)
  const waits = await Operation.exists({ held_in: line }).setOptions(everyTenant)
  return waits && takeFrom(line)
}

const takeFrom = (held_in: string): Promise<OperationDocument | null> =>
  Operation.findOneAndUpdate(
    { held_in },
    { $set: { undispatched: true }, $unset: { held_in: 1, step: 1 } },
    { sort: { _id: 1 }, returnDocument: 'after' },
  )
    .setOptions(everyTenant)
    .lean()

/**
 * Takes operations for the room in all lines. Most room is taken at an end (`nextInLine`); this finds what a killed process
 * left, and room that came while an operation joined its line.
 */
export async function takeLeftInLines(): Promise<OperationDocument[]> {
  const taken: OperationDocument[] = []
  for (let line = ''; ; ) {
    const first = await Operation.findOne({ held_in: { $gt: line } })
      .sort({ held_in: 1 })
      .setOptions(everyTenant)
      .lean()
    if (!first?.held_in) return taken
    line = first.held_in
    const room = most - (await Operation.countDocuments(underWay(first)).limit(most))
    for (let free = room; free > 0; free--) {
      const next = await takeFrom(line)
      if (!next) break
      taken.push(next)
    }
  }
}
