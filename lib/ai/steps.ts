import { collecting } from './check-expressions.ts'
import { checkNode } from './check-node.ts'
import type { ItemStep, NodeSpec } from './node-kinds.ts'
import { anything } from './programs.ts'

// The steps of a run: its nodes, and the items of its maps.

type Nodes = Record<string, NodeSpec>

export interface NamedStep {
  step: NodeSpec | ItemStep
  /** Of an item: its map and its place there. */
  map: string | null
  item: number | null
}

/** Null: the spec has no such step. */
export function stepNamed(nodes: Nodes, name: string): NamedStep | null {
  const [first = '', index] = name.split('-')
  const node = Object.hasOwn(nodes, first) ? nodes[first] : undefined
  if (!node) return null
  if (index === undefined) return { step: node, map: null, item: null }
  return node.kind === 'map' ? { step: node.do, map: first, item: Number(index) } : null
}

/** The nodes that the expressions of a map's `do` name. */
export function nodesOfItems({ do: step }: Extract<NodeSpec, { kind: 'map' }>): string[] {
  const names = new Set<string>()
  const note = (_: string, __: string, nodes: Set<string>): void => nodes.forEach((name) => names.add(name))
  checkNode(step, '', collecting(note, ignore), anything)
  return [...names].toSorted()
}

const ignore = (): void => {} // the spec is valid
