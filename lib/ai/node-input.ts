import { createHash } from 'node:crypto'
import { canonicalJson } from './canonical.ts'
import type { ItemStep, NodeSpec } from './node-kinds.ts'
import { type Plan, variablesOf } from './plan.ts'
import type { Spec } from './spec.ts'

// What a node's output depends on. Two runs whose nodes have the same may share the output.

/** The kinds of things of the tenant that nodes name, and how they name them. */
export type Named = Record<'connector' | 'tool' | 'collection' | 'workflow', string[]>

/** What a node names of the tenant's, and the models that it calls. */
export function namedBy(spec: Pick<Spec, 'models'>, node: NodeSpec): Named & { models: object[] } {
  const steps: (NodeSpec | ItemStep)[] = node.kind === 'map' ? [node, node.do] : [node]
  const of = <K extends string>(field: K): string[] =>
    steps.flatMap((step) => {
      const name = (step as Partial<Record<K, unknown>>)[field]
      return typeof name === 'string' ? [name] : []
    })
  const models = of('model').flatMap((alias) => spec.models?.[alias] ?? [])
  return {
    models,
    connector: models.map(({ connector }) => connector),
    tool: [
      ...of('tool'),
      ...steps.flatMap((step) => (step.kind === 'llm' ? (step.tools ?? []).map(({ tool }) => tool) : [])),
    ],
    collection: of('collection'),
    workflow: of('workflow'),
  }
}

/** Which things these names are at this moment: any JSON. */
type Pinned = unknown

/** SHA-256 of a node's spec, of the models and things that it uses, and of the values given to it with their types. */
export function inputHash(
  { spec, plan }: { spec: Spec; plan: Plan },
  name: string,
  pinned: Pinned,
  { given, nodes }: { given: string; nodes: object },
): string {
  const node = spec.nodes[name] as NodeSpec
  const { models } = namedBy(spec, node)
  // An integer divides otherwise than a double.
  const types = variablesOf(plan, plan.nodes[name]?.uses ?? [])
  return createHash('sha256')
    .update(canonicalJson({ node, models, pinned, types, nodes }))
    .update('\n')
    .update(given)
    .digest('hex')
}
