import { bounds } from './bounds.ts'
import type { Findings } from './findings.ts'
import type { Lookups, PublishedWorkflow, ToolSchemas } from './lookups.ts'
import type { ItemStep, NodeSpec } from './node-kinds.ts'
import type { ModelAlias } from './spec.ts'
import { pointerTo } from './templates.ts'

type Step = ItemStep | NodeSpec
type Nodes = Record<string, NodeSpec | null>

/** What the nodes refer to, as it was found. */
export interface Found {
  tools: Map<string, ToolSchemas>
  workflows: Map<string, PublishedWorkflow>
}

export const keyOf = (reference: string, detail: string | number | null): string =>
  JSON.stringify([reference, detail])

/** Looks up all that the spec names, each once, and adds what is missing. */
export async function checkReferences(
  models: Record<string, ModelAlias>,
  nodes: Nodes,
  lookups: Lookups,
  findings: Findings,
): Promise<Found> {
  const found: Found = { tools: new Map(), workflows: new Map() }
  const steps = stepsOf(nodes)
  const kept = new Map<string, unknown>()
  const lookUp = async <T>(kind: string, key: string, look: () => Promise<T>): Promise<T> => {
    const whole = `${kind} ${key}`
    if (!kept.has(whole)) kept.set(whole, await look())
    return kept.get(whole) as T
  }
  if (countOf(models, steps) > bounds.references) {
    findings.add(null, '/nodes', 'too_large', `names more than ${bounds.references} things of the tenant`)
    return found
  }
  for (const [alias, { connector, model }] of Object.entries(models)) {
    const users = steps.filter(({ step }) => step.kind === 'llm' && step.model === alias)
    const owners = users.length > 0 ? users.map(({ node }) => node) : [null]
    const pointer = pointerTo('', 'models', alias)
    const known = await lookUp('connector', connector, () => lookups.connector(connector))
    for (const owner of owners) {
      if (!known)
        findings.add(owner, `${pointer}/connector`, 'connector_missing', `there is no connector ${connector}`)
      else if (known.models && !known.models.includes(model)) {
        findings.add(owner, `${pointer}/model`, 'model_unknown', `the provider has no model ${model}`)
      }
    }
  }
  for (const { node, step, pointer } of steps) {
    if (step.kind === 'llm' && !Object.hasOwn(models, step.model)) {
      findings.add(node, `${pointer}/model`, 'model_unknown', `\`models\` has no ${step.model}`)
    }
    for (const { tool, name, at } of toolsOf(step, pointer)) {
      const key = keyOf(tool, name)
      const schemas = await lookUp('tool', key, () => lookups.tool(tool, name))
      if (schemas) found.tools.set(key, schemas)
      else
        findings.add(
          node,
          at,
          'tool_missing',
          `there is no tool ${name === null ? tool : `${name} of ${tool}`}`,
        )
    }
    if (step.kind === 'retrieve') {
      const { collection } = step
      const known = await lookUp('collection', collection, () => lookups.collection(collection))
      if (!known) {
        findings.add(
          node,
          `${pointer}/collection`,
          'collection_missing',
          `there is no collection ${collection}`,
        )
      }
    }
    if (step.kind === 'workflow') {
      const version = step.version ?? null
      const key = keyOf(step.workflow, version)
      const known = await lookUp('workflow', key, () => lookups.workflow(step.workflow, version))
      if (known) found.workflows.set(key, known)
      checkWorkflow(node, `${pointer}/workflow`, known, lookups.self_id, findings)
    }
  }
  return found
}

function checkWorkflow(
  node: string,
  pointer: string,
  known: PublishedWorkflow | null,
  selfId: string,
  findings: Findings,
): void {
  if (!known) findings.add(node, pointer, 'workflow_missing', 'there is no such published workflow')
  else if (known.calls.includes(selfId)) findings.add(node, pointer, 'cycle', 'calls this workflow')
  else if (known.depth >= bounds.workflowDepth) {
    findings.add(
      node,
      pointer,
      'depth_too_high',
      `makes more than ${bounds.workflowDepth} workflows within each other`,
    )
  }
}

/** Nodes, and what maps do with their items. */
function stepsOf(nodes: Nodes): { node: string; step: Step; pointer: string }[] {
  return Object.entries(nodes).flatMap(([node, step]) => {
    if (!step) return []
    const pointer = pointerTo('', 'nodes', node)
    const inner = step.kind === 'map' ? [{ node, step: step.do, pointer: `${pointer}/do` }] : []
    return [{ node, step, pointer }, ...inner]
  })
}

function toolsOf(step: Step, pointer: string): { tool: string; name: string | null; at: string }[] {
  if (step.kind === 'tool') return [{ tool: step.tool, name: step.name ?? null, at: `${pointer}/tool` }]
  if (step.kind !== 'llm') return []
  return (step.tools ?? []).map(({ tool, name }, at) => ({
    tool,
    name: name ?? null,
    at: pointerTo(pointer, 'tools', at),
  }))
}

function countOf(models: Record<string, ModelAlias>, steps: { step: Step }[]): number {
  const names = steps.flatMap(({ step }) => [
    ...toolsOf(step, '').map(({ tool, name }) => keyOf(tool, name)),
    ...(step.kind === 'retrieve' ? [`collection ${step.collection}`] : []),
    ...(step.kind === 'workflow' ? [`workflow ${keyOf(step.workflow, step.version ?? null)}`] : []),
  ])
  return new Set([...Object.values(models).map(({ connector }) => connector), ...names]).size
}
