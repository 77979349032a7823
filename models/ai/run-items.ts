import { evaluationBounds, runBounds } from '../../lib/ai/bounds.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { itemName } from '../../lib/ai/graph.ts'
import { nodesOfItems } from '../../lib/ai/steps.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { mapAtOnce } from '../../lib/queue.ts'
import type { ItemEnd, OpenedMap } from '../../lib/runner-maps.ts'
import { transaction } from '../database.ts'
import { AiRunNode, type AiRunNodeDocument, runNodeId } from './run-node-records.ts'
import {
  given,
  keepBoth,
  needOpen,
  needOpenRun,
  over,
  runOfRunner,
  type RunnerOf,
  versionOfRunner,
} from './run-nodes.ts'
import { openValue, storeSealed } from './redacted-values.ts'
import { outputFields, storeOutputOf } from './run-redaction.ts'
import { dropValues, keepValue, needValue, type StoredValue, storeValue } from './run-values.ts'

// The items of maps. Each has a record until its map has ended, so that a further attempt of the map goes on with those that
// have none.

const own = ({ tenant_id }: RunnerOf, run_id: string, map: string) => ({ tenant_id, run_id, map })

/** What an attempt of a map finds. Throws NotFound, `attempt_over`. */
export async function openItems(
  runner: RunnerOf,
  run_id: string,
  node: string,
  attempt: number,
  all: number,
): Promise<OpenedMap> {
  const { spec } = await versionOfRunner(runner)
  const map = Object.hasOwn(spec.nodes, node) ? spec.nodes[node] : undefined
  if (map?.kind !== 'map') throw new NotFound('map')
  await noteItems(runner, run_id, node, attempt, all)
  const records = await AiRunNode.find(own(runner, run_id, node), { output: 0 })
    .sort({ item: 1 })
    .lean()
  const failed = records.flatMap(({ item = 0, status, error }) =>
    status === 'failed' && error && insteadOf(map) === null ? [{ item, ...error }] : [],
  )
  return {
    ...(await given(await runOfRunner(runner, run_id), spec, nodesOfItems(map))),
    ended: records.filter(({ status }) => status !== 'running').map(({ item = 0 }) => item),
    failed,
    begun: records.flatMap(({ item = 0, status, attempt: last }) =>
      status === 'running' && last !== null ? [{ item, attempt: last }] : [],
    ),
  }
}

/** Records how many items a map has. Throws `attempt_over`. */
export async function noteItems(
  runner: RunnerOf,
  run_id: string,
  node: string,
  attempt: number,
  all: number,
): Promise<void> {
  const { tenant_id } = runner
  await needOpenRun(runner, run_id)
  const { matchedCount } = await AiRunNode.updateOne(
    { _id: runNodeId(run_id, node), tenant_id, status: 'running', attempt },
    [{ $set: { items: { $ifNull: ['$items', { all, ended: 0, failed: 0 }] } } }],
    { updatePipeline: true },
  )
  if (!matchedCount) throw over('Another attempt has begun, or the map has ended')
}

/** Records how items have ended. Those that had ended before stay as they are. Throws NotFound, and as `needOpen`. */
export async function endItems(
  runner: RunnerOf,
  run_id: string,
  node: string,
  ends: ItemEnd[],
): Promise<void> {
  const values = new Map<number, StoredValue>()
  const store = await storeOfItems(runner, run_id, node)
  for (const end of ends) {
    if (end.status !== 'succeeded') continue
    needValue(end.output, runBounds.depth - 1) // the list is around it
    values.set(end.item, await store(end.output))
  }
  await transaction(() => writeEnds(runner, run_id, node, ends, values), run_id)
}

/** How the output of an item of this map is stored: nobody sees it, and it is sealed if some of the map's is redacted. */
export async function storeOfItems(
  { tenant_id }: Pick<RunnerOf, 'tenant_id'>,
  run_id: string,
  map: string,
): Promise<(json: string) => Promise<StoredValue>> {
  const its = { _id: runNodeId(run_id, map), tenant_id }
  const record = await AiRunNode.findOne(its, { redaction_json: 1 }).lean()
  return record?.redaction_json === undefined
    ? storeValue
    : (json) => storeSealed({ _id: run_id, tenant_id }, json)
}

/** Call in a transaction. */
export async function writeEnds(
  runner: RunnerOf,
  run_id: string,
  node: string,
  ends: Pick<ItemEnd, 'item' | 'attempt' | 'status'>[],
  values: Map<number, StoredValue>,
): Promise<void> {
  const { tenant_id } = runner
  const idOf = ({ item }: { item: number }): string => runNodeId(run_id, itemName(node, item))
  const found = await AiRunNode.find({ _id: { $in: ends.map(idOf) }, tenant_id }, { output: 0 }).lean()
  const before = new Map(found.map((record) => [record._id, record]))
  const fresh = ends.filter((end) => mayEnd(before.get(idOf(end)), end.attempt))
  const bytes = fresh.map(({ item }) => values.get(item)?.bytes ?? 0).reduce((sum, one) => sum + one, 0)
  await needOpen(runner, run_id, { bytes })
  if (fresh.length === 0) return
  const ended_at = new Date()
  await AiRunNode.bulkWrite(
    fresh.map((end) => {
      const { item, attempt, status } = end
      const output = values.get(item) ?? null
      const error = 'error' in end ? (end.error as AiRunNodeDocument['error']) : null
      return {
        updateOne: {
          filter: { _id: idOf(end), tenant_id },
          update: {
            $set: { status, output, error, ended_at },
            $setOnInsert: { run_id, node: itemName(node, item), map: node, item, attempt },
          },
          upsert: true,
        },
      }
    }),
  )
  const failed = fresh.filter(({ status }) => status === 'failed').length
  const { matchedCount } = await AiRunNode.updateOne(
    { _id: runNodeId(run_id, node), tenant_id, status: 'running', items: { $exists: true } },
    { $inc: { 'items.ended': fresh.length, 'items.failed': failed } },
  )
  if (!matchedCount) throw over('The map has ended')
  for (const { item } of fresh) {
    const value = values.get(item)
    if (value) await keepValue(value)
  }
}

/** A late attempt of an item ends nothing. */
const mayEnd = (
  record: Pick<AiRunNodeDocument, 'status' | 'attempt'> | undefined,
  attempt: number | null,
): boolean => record === undefined || (record.status === 'running' && record.attempt === attempt)

const readsAtOnce = 8

/**
 * Ends a map with the list of what its items have left, which takes their place. Repeated, it changes nothing. `attempt`: null
 * if no runner is at work on it. Throws NotFound, `attempt_over`, `too_large`.
 */
export async function gatherItems(
  runner: RunnerOf,
  run_id: string,
  node: string,
  { all, attempt }: { all: number; attempt: number | null },
): Promise<void> {
  const { tenant_id } = runner
  const _id = runNodeId(run_id, node)
  const map = await AiRunNode.findOne({ _id, tenant_id, run_id }, { output: 0 }).lean()
  if (!map) throw new NotFound('node')
  if (map.status === 'succeeded') return
  const { spec } = await versionOfRunner(runner)
  const instead = insteadOf(spec.nodes[node])
  const records = await AiRunNode.find(own(runner, run_id, node))
    .sort({ item: 1 })
    .lean()
  const done = records.filter(
    ({ status }) => status === 'succeeded' || (status === 'failed' && instead !== null),
  )
  if (done.length !== all) throw over(`${done.length} of its ${all} items are done`)
  const bytes = records.map(({ output }) => output?.bytes ?? 0).reduce((sum, one) => sum + one, 0)
  if (bytes > evaluationBounds.outputBytes) throw tooLarge()
  const values = await mapAtOnce(records, readsAtOnce, async ({ output }) =>
    output ? await openValue({ _id: run_id, tenant_id }, output) : (instead ?? 'null'),
  )
  const json = `[${values.join()}]`
  if (Buffer.byteLength(json) > evaluationBounds.outputBytes) throw tooLarge()
  const output = await storeOutputOf(map, json)
  await transaction(async () => {
    await needOpen(runner, run_id, { bytes: output.shown.bytes - bytes })
    const { matchedCount } = await AiRunNode.updateOne(
      { _id, tenant_id, status: 'running', ...(attempt === null ? {} : { attempt }) },
      { $set: { status: 'succeeded', ...outputFields(output), ended_at: new Date() } },
    )
    if (!matchedCount) throw over('Another attempt has begun, or the map has ended')
    await keepBoth(output)
    await dropValues(records.map((record) => record.output))
    await AiRunNode.deleteMany(own(runner, run_id, node))
  }, run_id)
}

/** The JSON that a failed item has instead; null: it has none. */
function insteadOf(map: NodeSpec | undefined): string | null {
  const handling = map?.kind === 'map' ? map.do.on_error : undefined
  return typeof handling === 'object' ? JSON.stringify(handling.value) : null
}

const tooLarge = (): Problem =>
  new Problem(
    422,
    'too_large',
    'The value is too large',
    `The list has more than ${evaluationBounds.outputBytes / 1024 ** 2} MiB`,
  )
