import { checkNode, type Visitor } from './check-node.ts'
import type { Wanted } from './evaluate.ts'
import type { NodeSpec } from './node-kinds.ts'

// What a node evaluates when it runs: the expressions that validation has checked, found by the same walk.

/** By JSON pointer into the node. */
export type Program = Record<string, Wanted>

export interface NodeProgram {
  /** Null if the node has no `when`. It comes first: if it is false, the rest may have no value. */
  when: Wanted | null
  fields: Program
  /** Of a `map`: evaluated for each item. */
  ofItem: Program
}

export function programOf(node: NodeSpec): NodeProgram {
  const fields: Program = {}
  const ofItem: Program = {}
  checkNode(node, '', collectingInto(fields, ofItem), anything)
  return { when: node.when === undefined ? null : { expression: node.when }, fields, ofItem }
}

function collectingInto(fields: Program, ofItem: Program): Visitor {
  return {
    expression: (pointer, expression) => {
      fields[pointer] = { expression }
      return 'any'
    },
    text: (pointer, text) => {
      fields[pointer] = { text }
    },
    value: (pointer, value) => {
      fields[pointer] = { value }
      return 'any'
    },
    ofItem: () => collectingInto(ofItem, {}),
  }
}

/** What a run looks nothing up for. */
export const anything = {
  tool: () => ({ input: 'any', output: 'any' }) as const,
  workflow: () => ({ input: 'any', output: 'any' }) as const,
  needs: [],
}

/** What a run knows of a node. The output is JSON as it was stored. */
export type NodeResult =
  | { status: 'succeeded'; output: string }
  | { status: 'failed'; error: { code: string; message: string } }
  | { status: 'skipped' }

/** The JSON of the variables, made of JSON: outputs may be large, and are not read here. */
export function variablesJson(
  input: string,
  nodes: Record<string, NodeResult>,
  item?: { item: string; index: number },
): string {
  const results = Object.entries(nodes).map(
    ([name, result]) => `${JSON.stringify(name)}:${resultJson(result)}`,
  )
  const ofItem = item ? `,"item":${item.item},"index":${item.index}` : ''
  return `{"input":${input},"nodes":{${results.join()}}${ofItem}}`
}

/** The same with one more node, which has succeeded. `variables`: as `variablesJson` makes them, without an item. */
export function withOutput(variables: string, name: string, output: string): string {
  const before = variables.slice(0, -2)
  const comma = before.endsWith('{') ? '' : ','
  return `${before}${comma}${JSON.stringify(name)}:${resultJson({ status: 'succeeded', output })}}}`
}

function resultJson(result: NodeResult): string {
  if (result.status !== 'succeeded') return JSON.stringify(result)
  return `{"status":"succeeded","output":${result.output}}`
}
