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
    findings.add(
      null,
      '/nodes',
      'too_large',
      `refers to more than ${bounds.references} models, tools, collections and workflows`,
    )
    return found
  }
  const hasModel = await askForModels(Object.values(models), lookups)
  for (const [alias, { connector, model }] of Object.entries(models)) {
    const users = steps.filter(({ step }) => step.kind === 'llm' && step.model === alias)
    const owners = users.length > 0 ? users.map(({ node }) => node) : [null]
    const pointer = pointerTo('', 'models', alias)
    const has = hasModel.get(keyOf(connector, model))
    for (const owner of owners) {
      if (has === undefined)
        findings.add(owner, `${pointer}/connector`, 'connector_missing', missing('connector', connector))
      else if (has === false)
        findings.add(owner, `${pointer}/model`, 'model_unknown', `the provider has no model ${model}`)
    }
  }
  for (const { node, step, pointer } of steps) {
    if (step.kind === 'llm' && !Object.hasOwn(models, step.model)) {
      findings.add(node, `${pointer}/model`, 'model_unknown', `\`models\` has no ${step.model}`)
    }
    for (const { tool, name, at } of toolsOf(step, pointer)) {
      const key = keyOf(tool, name)
      const schemas = await lookUp('tool', key, () => lookups.tool(tool, name))
      if (schemas?.not_callable) findings.add(node, at, 'tool_not_callable', schemas.not_callable)
      else if (schemas) found.tools.set(key, schemas)
      else
        findings.add(node, at, 'tool_missing', missing('tool', name === null ? tool : `${name} of ${tool}`))
      if (schemas?.are_several && !schemas.not_callable && step.kind === 'tool')
        findings.add(node, `${pointer}/name`, 'invalid_field', `is required: ${tool} has several tools`)
    }
    if (step.kind === 'retrieve') {
      const { collection } = step
      const known = await lookUp('collection', collection, () => lookups.collection(collection))
      if (!known) {
        const place = `${pointer}/collection`
        findings.add(node, place, 'collection_missing', missing('collection', collection))
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

const missing = (what: string, name: string): string => `there is no ${what} ${name}`

/**
 * Whether providers have the models, by connector and model, of connectors that are there. All are asked at once, because
 * providers take their time.
 */
async function askForModels(models: ModelAlias[], lookups: Lookups): Promise<Map<string, boolean | null>> {
  const there = new Set<string>()
  for (const connector of new Set(models.map((alias) => alias.connector)))
    if (await lookups.connector(connector)) there.add(connector)
  const asked = new Map(models.map((alias) => [keyOf(alias.connector, alias.model), alias]))
  const answers = [...asked]
    .filter(([, { connector }]) => there.has(connector))
    .map(async ([key, { connector, model }]) => [key, await lookups.model(connector, model)] as const)
  return new Map(await Promise.all(answers))
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
    findings.add(node, pointer, 'depth_too_high', `nests more than ${bounds.workflowDepth} workflows`)
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
  return new Set([...Object.values(models).map(({ connector, model }) => keyOf(connector, model)), ...names])
    .size
}
