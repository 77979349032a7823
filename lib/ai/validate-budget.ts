import { unboundedAnswer } from './bounds.ts'
import type { Findings } from './findings.ts'
import type { Lookups } from './lookups.ts'
import { defaults, type NodeSpec } from './node-kinds.ts'
import type { ModelAlias, Spec } from './spec.ts'
import { pointerTo } from './templates.ts'

/** Adds what a run could not take: more than the tenant may, or a node more than its run. */
export function checkBudget(
  budget: Spec['budget'],
  models: Record<string, ModelAlias>,
  nodes: Record<string, NodeSpec | null>,
  most: Lookups['most'],
  findings: Findings,
): void {
  for (const name of ['usd', 'tokens', 'wall_sec'] as const) {
    const wanted = budget[name]
    if (wanted === undefined || wanted <= most[name]) continue
    findings.add(null, `/budget/${name}`, 'budget_too_high', `is ${wanted}, and the limit is ${most[name]}`)
  }
  for (const [name, node] of Object.entries(nodes)) {
    if (node) checkNode(name, node, budget, models, findings)
  }
}

function checkNode(
  name: string,
  node: NodeSpec,
  { tokens, wall_sec }: Spec['budget'],
  models: Record<string, ModelAlias>,
  findings: Findings,
): void {
  const pointer = pointerTo('', 'nodes', name)
  const steps = node.kind === 'map' ? [{ step: node.do, at: `${pointer}/do` }] : [{ step: node, at: pointer }]
  for (const { step, at } of steps) {
    const times = {
      timeout_sec: 'timeout_sec' in step ? step.timeout_sec : undefined,
      deadline_sec: 'deadline_sec' in step ? step.deadline_sec : undefined,
    }
    for (const [field, seconds] of Object.entries(times)) {
      if (seconds === undefined || seconds <= wall_sec) continue
      findings.add(name, `${at}/${field}`, 'budget_too_high', `is more than the run’s wall_sec (${wall_sec})`)
    }
    if (step.kind !== 'llm' || tokens === undefined) continue
    const model = Object.hasOwn(models, step.model) ? models[step.model] : undefined
    const answer = model?.parameters?.max_tokens
    if (answer !== undefined && answer > tokens) {
      const place = pointerTo('', 'models', step.model, 'parameters', 'max_tokens')
      findings.add(name, place, 'budget_too_high', `is more than the run’s tokens (${tokens})`)
    } else if (node.kind === 'map' && model) {
      const fault = faultAtOnce(node, model, tokens)
      if (fault) findings.add(name, `${pointer}/at_once`, 'budget_too_low', fault)
    }
  }
}

/**
 * A call begins only while the run's tokens are neither spent nor reserved: of calls at once, those that find all of them reserved
 * are refused. Null if there is room for all that a map makes.
 */
function faultAtOnce(
  { at_once = defaults.at_once, max_items = defaults.max_items }: Extract<NodeSpec, { kind: 'map' }>,
  { connector, parameters }: ModelAlias,
  tokens: number,
): string | null {
  const calls = Math.min(at_once, max_items)
  const bound = parameters?.max_tokens
  const each = bound ?? (connector === 'anthropic' ? unboundedAnswer.anthropic : unboundedAnswer.usual)
  const room = Math.ceil(tokens / each)
  if (calls <= room) return null
  const why = bound === undefined ? ', because its model has no max_tokens' : ''
  return `makes ${calls} calls at once, each of which reserves ${each} tokens for its answer${why}: the run’s tokens (${tokens}) have room for ${room}`
}
