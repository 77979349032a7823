import type { Findings } from './findings.ts'
import { ancestorsOf, edgeOf, type Graph, gotoOf, graphOf, nodesInCycles } from './graph.ts'
import type { NodeSpec } from './node-kinds.ts'
import { pointerTo } from './templates.ts'

type Nodes = Record<string, NodeSpec | null>

export interface CheckedGraph {
  graph: Graph
  ancestors: Record<string, Set<string>>
  /** Each after those that it waits for; nodes of cycles last. */
  order: string[]
}

/** Adds unknown names in needs, cycles, and what can never start. */
export function checkGraph(nodes: Nodes, findings: Findings): CheckedGraph {
  for (const [name, node] of Object.entries(nodes)) checkNames(name, node, nodes, findings)
  const known = Object.entries(nodes).map(([name, node]) => [name, node ?? unknown] as const)
  const graph = graphOf(Object.fromEntries(known))
  const ancestors = ancestorsOf(graph)
  const inCycles = nodesInCycles(graph)
  for (const name of inCycles) {
    const through = inCycles.filter(
      (other) => other !== name && ancestors[name]?.has(other) && ancestors[other]?.has(name),
    )
    const others = through.length > 0 ? ` (through ${through.slice(0, 10).join(', ')})` : ''
    findings.add(name, pointerTo('', 'nodes', name, 'needs'), 'cycle', `waits for itself${others}`)
  }
  const order = Object.keys(graph).toSorted((a, b) => (ancestors[a]?.size ?? 0) - (ancestors[b]?.size ?? 0))
  const stuck = order.filter((name) =>
    inCycles.some((other) => other === name || ancestors[name]?.has(other)),
  )
  checkReach(nodes, graph, order, new Set(stuck), findings)
  return { graph, ancestors, order }
}

/** A node without the right form may be anything. */
const unknown: NodeSpec = { kind: 'template', value: null }

function checkNames(name: string, node: NodeSpec | null, nodes: Nodes, findings: Findings): void {
  const needs = node?.needs ?? []
  for (const [at, need] of needs.entries()) {
    const pointer = pointerTo('', 'nodes', name, 'needs', at)
    const fault = needFault(need, nodes)
    if (fault) findings.add(name, pointer, 'unknown_reference', fault)
    if (needs.indexOf(need) < at) findings.add(name, pointer, 'invalid_field', 'is listed twice')
  }
  const goto = node && gotoOf(node)
  if (goto && !Object.hasOwn(nodes, goto)) {
    findings.add(name, pointerTo('', 'nodes', name, 'on_error', 'goto'), 'unknown_reference', noNode(goto))
  }
  if (node?.kind === 'merge' && needs.length === 0) {
    findings.add(
      name,
      pointerTo('', 'nodes', name, 'needs'),
      'invalid_field',
      'a merge must have at least one node in `needs`',
    )
  }
}

const noNode = (name: string): string => `there is no node ${name}`

function needFault(need: string, nodes: Nodes): string | null {
  const { from, if: condition } = edgeOf(need)
  if (!Object.hasOwn(nodes, from)) return noNode(from)
  const node = nodes[from]
  if (typeof condition === 'string' || !node) return null
  if (node.kind !== 'switch') return `${from} is not a switch, and has no cases`
  return casesOf(node).includes(condition.case) ? null : `${from} has no case ${condition.case}`
}

export const casesOf = (node: NodeSpec & { kind: 'switch' }): string[] => [
  ...node.cases.map(({ name }) => name),
  ...(node.default === undefined ? [] : [node.default]),
]

/** Adds the nodes and cases that no run can reach. `stuck` are the nodes of cycles, and what waits for them. */
function checkReach(
  nodes: Nodes,
  graph: Graph,
  order: readonly string[],
  stuck: ReadonlySet<string>,
  findings: Findings,
): void {
  const reached = new Set<string>()
  for (const name of order) {
    const pointer = pointerTo('', 'nodes', name)
    const node = nodes[name]
    if (isNever(node?.when)) findings.add(name, `${pointer}/when`, 'unreachable', 'is never true')
    else if (!stuck.has(name) && canStart(name, nodes, graph, reached)) reached.add(name)
    else if (!findings.has(name, 'cycle')) {
      findings.add(name, `${pointer}/needs`, 'unreachable', 'none of its needs can be met')
    }
    if (node?.kind === 'switch') checkCases(name, node, findings)
  }
}

function checkCases(name: string, node: NodeSpec & { kind: 'switch' }, findings: Findings): void {
  const certain = certainCase(node)
  if (certain < 0) return
  const pointer = pointerTo('', 'nodes', name)
  for (let at = certain + 1; at < node.cases.length; at++) {
    findings.add(name, `${pointer}/cases/${at}`, 'unreachable', 'a case before it is always true')
  }
  if (node.default !== undefined) {
    findings.add(name, `${pointer}/default`, 'unreachable', 'a case is always true')
  }
}

function canStart(name: string, nodes: Nodes, graph: Graph, reached: ReadonlySet<string>): boolean {
  const edges = graph[name]?.edges ?? []
  if (edges.length === 0) return true
  const gotos = edges.filter((edge) => edge.if === 'failure')
  return (gotos.length > 0 ? gotos : edges).some((edge) => {
    if (!reached.has(edge.from)) return false
    const node = nodes[edge.from]
    if (typeof edge.if === 'string' || node?.kind !== 'switch') return true
    const unreachable = casesOf(node).filter((one) => !reachableCases(node).includes(one))
    return !unreachable.includes(edge.if.case) // an unknown case was reported already
  })
}

const isNever = (when: string | undefined): boolean => when?.trim() === 'false'
const certainCase = (node: NodeSpec & { kind: 'switch' }): number =>
  node.cases.findIndex(({ when }) => when.trim() === 'true')

function reachableCases(node: NodeSpec & { kind: 'switch' }): string[] {
  const certain = certainCase(node)
  return certain < 0 ? casesOf(node) : node.cases.slice(0, certain + 1).map(({ name }) => name)
}
