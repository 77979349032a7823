import { setTimeout as delay } from 'node:timers/promises'
import type { Wanted } from '../../lib/ai/evaluate.ts'
import { defaults, type ItemStep, type NodeSpec } from '../../lib/ai/node-kinds.ts'
import { variablesOf } from '../../lib/ai/plan.ts'
import { itemName } from '../../lib/ai/graph.ts'
import { makeQueue } from '../../lib/queue.ts'
import type { Fault, ItemEnd, OpenedMap } from '../../lib/runner-maps.ts'
import type { Begun, Ended } from '../../lib/runner-protocol.ts'
import { makeItemWriter } from './item-writer.ts'
import { NodeFault, timedOut, withoutNoValue } from './node-faults.ts'
import { jsonAt, type RunnerWork } from './work.ts'

// Maps. One activity carries out all items, so that a map has a few events in its run's history, and one place counts what runs
// at once. Each item's end is recorded at the API; if the runner is killed, the next attempt goes on with the others.

/** What a map needs of an attempt. An item's has the item's name. */
interface Attempt {
  work: RunnerWork
  run: string
  name: string
  attempt: number
  begun: Begun
  signal: AbortSignal
  /** How the names of its calls begin. */
  calls?: string
  evaluate(this: void, pointer: string, wanted: Wanted): Promise<string>
}
type CarryOut<A extends Attempt> = (step: NodeSpec, attempt: A) => Promise<Ended>
type MapSpec = Extract<NodeSpec, { kind: 'map' }>

/** Of all maps of the runner: each has at most 16. */
const itemsAtOnce = makeQueue(32)

/** An attempt that leaves its node to the run's workflow. */
export const asWaiting = ({
  message = null,
  items = null,
}: Partial<Pick<Extract<Ended, { status: 'waiting' }>, 'message' | 'items'>>): Ended => ({
  status: 'waiting',
  message,
  items,
})

/** Throws NodeFault of the first item that failed and has no other value. The others are cancelled then. */
export async function mapItems<A extends Attempt>(
  map: MapSpec,
  attempt: A,
  carryOut: CarryOut<A>,
): Promise<Ended> {
  const { work, run, name, signal } = attempt
  const { max_items = defaults.max_items, at_once = defaults.at_once } = map
  const list = listIn(await attempt.evaluate('/items', { expression: map.items }))
  const all = list.length
  if (all > max_items)
    throw new NodeFault('too_many_items', `There are ${all} items, and \`max_items\` is ${max_items}`)
  // Runs wait for hours, and a runner must not.
  if (map.do.kind === 'workflow') return asWaiting({ items: all })

  const opened = await work.api.openItems(run, name, attempt.attempt, all, signal)
  const [failed] = opened.failed
  if (failed) throw itemFault(failed.item, failed)
  const ended = new Set(opened.ended)
  const left = list.flatMap((_, item) => (ended.has(item) ? [] : [item])).values()

  const stop = new AbortController()
  const its = AbortSignal.any([signal, stop.signal])
  const writer = makeItemWriter((ends) => work.api.endItems(run, name, ends, signal))
  const begun = new Map(opened.begun.map((one) => [one.item, one.attempt]))
  const one = async (item: number): Promise<void> => {
    const ofItem = itemAttempt(attempt, { list, item, opened, signal: its })
    const end = await endOf(map.do, ofItem, item, begun.get(item) ?? 0, carryOut)
    const written = writer.write(end)
    if (end.attempt !== null || end.status === 'failed' || writer.isFull()) await written
    if (end.status === 'failed' && typeof map.do.on_error !== 'object') throw itemFault(item, end.error)
  }
  const lane = async (): Promise<void> => {
    for (const item of left) {
      if (its.aborted) return
      await itemsAtOnce(() => one(item), its)
    }
  }
  let failure: { error: unknown } | undefined
  await Promise.all(
    Array.from({ length: at_once }, () =>
      lane().catch((error: unknown) => {
        failure ??= { error }
        stop.abort()
      }),
    ),
  )
  if (failure) {
    signal.throwIfAborted()
    throw failure.error
  }
  await writer.flush()
  return { status: 'gathered', items: all }
}

const itemFault = (item: number, { code, message }: Fault): NodeFault =>
  new NodeFault(code, `Item ${item}: ${message}`)

/** The items in the JSON of a list. */
export function listIn(json: string): unknown[] {
  const list: unknown = JSON.parse(json)
  if (!Array.isArray(list)) throw new NodeFault('expression_failed', '/items: The value is not a list')
  return list as unknown[]
}

/** The JSON of the variables of an item's expressions. */
export const givenWithItem = (given: string, list: unknown[], item: number): string =>
  `${given.slice(0, -1)},"item":${JSON.stringify(list[item])},"index":${item}}`

interface Item {
  list: unknown[]
  item: number
  opened: OpenedMap
  signal: AbortSignal
}

/** An item is carried out as a node of its kind would be, under a name of its own. */
function itemAttempt<A extends Attempt>(map: A, { list, item, opened, signal }: Item): A {
  const { work } = map
  const { plan, key } = work
  const given = givenWithItem(opened.given, list, item)
  const variables = variablesOf(plan, Object.keys(opened.nodes), plan.nodes[map.name]?.item ?? 'any')
  const name = itemName(map.name, item)
  const pool: RunnerWork['pool'] = {
    evaluate: (asked) => work.pool.evaluate(asked),
    // All items have the same schemas: each is compiled once.
    check: (asked) => work.pool.check({ ...asked, key: asked.key.replace(` ${name} `, ` ${map.name} `) }),
  }
  return {
    ...map,
    name,
    calls: name,
    attempt: 1,
    begun: { done: null, given, nodes: opened.nodes },
    signal,
    work: { ...work, pool },
    async evaluate(pointer, wanted) {
      const at = `/do${pointer}`
      const asked = { key: `${key} ${map.name} do`, variables, wanted: { [at]: wanted }, given }
      return jsonAt(at, await work.pool.evaluate(asked))
    },
  }
}

/** Carries out an item until it succeeds, or has used its attempts. `before`: those that have begun. */
async function endOf<A extends Attempt>(
  step: ItemStep,
  ofItem: A,
  item: number,
  before: number,
  carryOut: CarryOut<A>,
): Promise<ItemEnd> {
  const { work, run, name, signal } = ofItem
  if (!hasAttempts(step)) {
    try {
      return {
        item,
        attempt: null,
        status: 'succeeded',
        output: outputOf(await withoutNoValue(() => carryOut(step, ofItem))),
      }
    } catch (error) {
      signal.throwIfAborted()
      // What has no value now has none later; of all else, the map is attempted again.
      if (!(error instanceof NodeFault)) throw error
      return { item, attempt: null, status: 'failed', error: shown(error) }
    }
  }
  const { timeout_sec, most, backoff_sec } = attemptsOf(step)
  let fault: Fault = { code: 'runner_lost', message: 'The runner ended during the last attempt' }
  for (let attempt = before + 1; attempt <= most; attempt++) {
    const begun = await work.api.beginNode(run, name, attempt, signal)
    if (begun.done)
      throw new Error(`the item ${name} of the run ${run} has ended in another attempt of its map`)
    const timeout = AbortSignal.timeout(timeout_sec * 1000)
    try {
      const its = { ...ofItem, attempt, signal: AbortSignal.any([signal, timeout]) }
      const output = outputOf(await withoutNoValue(() => carryOut(step, its)))
      return { item, attempt, status: 'succeeded', output }
    } catch (error) {
      signal.throwIfAborted()
      fault = timeout.aborted ? timedOut : shown(error)
      if (isPermanent(error) && !timeout.aborted) return { item, attempt, status: 'failed', error: fault }
    }
    if (attempt < most) await delay(backoff_sec * 1000 * 2 ** (attempt - 1), undefined, { signal })
  }
  return { item, attempt: Math.max(before, most), status: 'failed', error: fault }
}

type Attempted = Extract<ItemStep, { timeout_sec?: number | undefined }>
const hasAttempts = (step: ItemStep): step is Attempted => step.kind in defaults.timeout_sec

function attemptsOf(step: Attempted) {
  const { timeout_sec = defaults.timeout_sec[step.kind], retry = defaults.retry } = step
  return { timeout_sec, most: retry.max + 1, backoff_sec: retry.backoff_sec ?? defaults.retry.backoff_sec }
}

function outputOf(end: Ended): string {
  if (end.status !== 'succeeded') throw new Error(`an item has ${end.status}`)
  return end.output
}

const isPermanent = (error: unknown): boolean =>
  error instanceof Error && 'permanent' in error && error.permanent === true

/** What the workflow's author sees. */
function shown(error: unknown): Fault {
  if (error instanceof Error && 'code' in error && 'permanent' in error)
    return { code: String(error.code), message: error.message.slice(0, 1_000) }
  return { code: 'internal', message: 'The platform failed; its operators can see why' }
}
