import type { Spec } from './spec.ts'

// Which node waits for which. Also runs in Temporal's sandbox.

/** A node waits until these have ended. */
export interface Edge {
  from: string
  /** `case`: only if that switch chose it. `failure`: only if that node failed, and says `goto`. */
  if: 'success' | 'failure' | { case: string }
}

export interface GraphNode {
  edges: Edge[]
  /** What follows a failure after the last attempt. `value`: the node counts as succeeded. */
  on_error: 'fail' | 'goto' | { value: { case: string | null } }
}

/** Nodes by name. */
export type Graph = Record<string, GraphNode>

type Nodes = Spec['nodes']

/** Of an item of a map: no node has such a name. */
export const itemName = (map: string, item: number): string => `${map}-${item}`

/** Names of nodes and items. */
export const stepName = /^[a-z][a-z0-9_]{0,62}(-\d{1,3})?$/

/** Edges to nodes that do not exist are left out; validation refuses them. */
export function graphOf(nodes: Nodes): Graph {
  const graph: Graph = {}
  for (const name of Object.keys(nodes).toSorted()) {
    graph[name] = { edges: edgesTo(name, nodes), on_error: onErrorOf(nodes[name]) }
  }
  return graph
}

function edgesTo(name: string, nodes: Nodes): Edge[] {
  const needs = (nodes[name]?.needs ?? []).map(edgeOf)
  const handled = Object.keys(nodes)
    .filter((other) => gotoOf(nodes[other]) === name)
    .map((from): Edge => ({ from, if: 'failure' }))
  return [...needs, ...handled].filter(({ from }) => Object.hasOwn(nodes, from))
}

/** `classify`, or `classify.billing`. */
export function edgeOf(need: string): Edge {
  const [from = '', chosen] = need.split('.')
  return { from, if: chosen === undefined ? 'success' : { case: chosen } }
}

export function gotoOf(node: Nodes[string] | undefined): string | null {
  const handling = node?.on_error
  return typeof handling === 'object' && 'goto' in handling ? handling.goto : null
}

function onErrorOf(node: Nodes[string] | undefined): GraphNode['on_error'] {
  const handling = node?.on_error
  if (typeof handling !== 'object') return 'fail'
  if ('goto' in handling) return 'goto'
  const { value } = handling
  return { value: { case: node?.kind === 'switch' && typeof value === 'string' ? value : null } }
}

/** The nodes that must have ended before each, directly or not. */
export function ancestorsOf(graph: Graph): Record<string, Set<string>> {
  const found: Record<string, Set<string>> = {}
  for (const name of Object.keys(graph)) {
    const ancestors = new Set<string>()
    const left = [name]
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      for (const { from } of graph[next]?.edges ?? []) {
        if (ancestors.has(from)) continue
        ancestors.add(from)
        left.push(from)
      }
    }
    found[name] = ancestors
  }
  return found
}

/** The nodes that wait for themselves. */
export const nodesInCycles = (graph: Graph): string[] => {
  const ancestors = ancestorsOf(graph)
  return Object.keys(graph).filter((name) => ancestors[name]?.has(name))
}
