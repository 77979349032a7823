import type { Wanted } from '../../lib/ai/evaluate.ts'
import { variablesOf } from '../../lib/ai/plan.ts'
import { itemName } from '../../lib/ai/graph.ts'
import { stepNamed } from '../../lib/ai/steps.ts'
import type { Called } from '../../lib/runner-maps.ts'
import { NodeFault, withoutQuotes } from './node-faults.ts'
import { givenWithItem, listIn } from './maps.ts'
import { jsonAt, redactedNode, type RunnerWork } from './work.ts'

// Nodes, and items of maps, that are runs of other workflows. The runner evaluates their inputs, and the run's workflow waits
// for them.

export interface WorkflowTask {
  run: string
  node: string
  item: number | null
  /** From 1 on, of the calls. */
  attempt: number
}

/** What the expressions of the last map see, and its items: they are the same for each item. */
interface LastMap {
  key: string
  given: string
  list: unknown[]
}

/** Throws NodeFault. */
export function makeCaller(work: RunnerWork) {
  const { api, spec, plan, pool, key } = work
  let last: LastMap | null = null

  const evaluated = async (
    name: string,
    given: string,
    pointer: string,
    wanted: Wanted,
    isOfItem: boolean,
  ): Promise<string> => {
    const { uses = [], item = 'any' } = plan.nodes[name] ?? {}
    const asked = {
      key: `${key} ${name}${isOfItem ? ' call' : ''}`,
      variables: variablesOf(plan, uses, isOfItem ? item : undefined),
      wanted: { [pointer]: wanted },
      given,
    }
    return jsonAt(pointer, await pool.evaluate(asked))
  }

  async function mapOf(run: string, node: string, items: string, signal: AbortSignal): Promise<LastMap> {
    const own = `${run}/${node}`
    if (last?.key === own) return last
    const { given } = await api.givenForNode(run, node, signal)
    const list = listIn(await evaluated(node, given, '/items', { expression: items }, false))
    last = { key: own, given, list }
    return last
  }

  return async ({ run, node, item, attempt }: WorkflowTask, signal: AbortSignal): Promise<Called> => {
    const name = item === null ? node : itemName(node, item)
    const step = stepNamed(spec.nodes, name)?.step
    const its = spec.nodes[node]
    if (step?.kind !== 'workflow' || !its) throw new NodeFault('not_found', `The version has no such node`)
    const input = await withoutQuotes(redactedNode(work, node) !== undefined, async () => {
      if (its.kind !== 'map' || item === null) {
        const { given } = await api.givenForNode(run, node, signal)
        return evaluated(node, given, '/input', { value: step.input }, false)
      }
      const { given, list } = await mapOf(run, node, its.items, signal)
      return evaluated(node, givenWithItem(given, list, item), '/do/input', { value: step.input }, true)
    })
    return api.callWorkflow(run, name, attempt, input, signal)
  }
}
