import type { ItemStep, NodeSpec } from './node-kinds.ts'
import { outputTypes } from './plan.ts'
import { pointerTo } from './templates.ts'
import { objectOf, type ObjectType, type Type, typeOfSchema, unified } from './types.ts'

// The expressions of each kind of node, and the type of its output.

/** What is done with each expression: first its references are collected, then its type is checked. */
export interface Visitor {
  /** A CEL expression that must have this type. Returns its own. */
  expression(pointer: string, text: string, wanted: Type): Type
  /** A text with expressions. */
  text(pointer: string, text: string): void
  /** JSON with expressions in its texts. */
  value(pointer: string, value: unknown, wanted: Type): Type
  /** The same, where `item` and `index` are known. */
  ofItem(item: Type): Visitor
}

/** What the node refers to, as it was looked up. */
export interface Known {
  tool(reference: string, name: string | null): { input: Type; output: Type }
  workflow(reference: string, version: number | null): { input: Type; output: Type }
  /** Outputs of the needs, each once. */
  needs: [name: string, output: Type][]
}

type Step = ItemStep | NodeSpec

/** Visits the node's expressions. Returns the type of its output. */
export function checkNode(node: Step, pointer: string, at: Visitor, known: Known): Type {
  switch (node.kind) {
    case 'llm':
      for (const [index, { content }] of node.messages.entries()) {
        at.text(pointerTo(pointer, 'messages', index, 'content'), content)
      }
      return node.output_schema ? typeOfSchema(node.output_schema) : 'string'
    case 'retrieve':
      at.text(`${pointer}/query`, node.query)
      return outputTypes.retrieve
    case 'tool': {
      const { input, output } = known.tool(node.tool, node.name ?? null)
      at.value(`${pointer}/arguments`, node.arguments ?? {}, input)
      return output
    }
    case 'http':
      return checkHttp(node, pointer, at)
    case 'workflow': {
      const { input, output } = known.workflow(node.workflow, node.version ?? null)
      at.value(`${pointer}/input`, node.input, input)
      return output
    }
    case 'template':
      return at.value(`${pointer}/value`, node.value, 'any')
    case 'switch':
      for (const [index, { when }] of node.cases.entries()) {
        at.expression(pointerTo(pointer, 'cases', index, 'when'), when, 'boolean')
      }
      return 'string'
    case 'map': {
      const items = at.expression(`${pointer}/items`, node.items, { list: 'any' })
      const item = typeof items === 'object' && 'list' in items ? items.list : 'any'
      return { list: checkNode(node.do, `${pointer}/do`, at.ofItem(item), known) }
    }
    case 'merge':
      return merged(node.take, known.needs)
    case 'approve':
      at.text(`${pointer}/message`, node.message)
      return outputTypes.approve
    default:
      return node satisfies never
  }
}

function checkHttp(node: Step & { kind: 'http' }, pointer: string, at: Visitor): ObjectType {
  at.text(`${pointer}/url`, node.url)
  for (const [name, header] of Object.entries(node.headers ?? {})) {
    at.text(pointerTo(pointer, 'headers', name), header)
  }
  if (node.body !== undefined) at.value(`${pointer}/body`, node.body, 'any')
  return outputTypes.http(node.output_schema ? typeOfSchema(node.output_schema) : 'any')
}

function merged(take: 'first' | 'list' | 'object', needs: Known['needs']): Type {
  if (take === 'object') return { ...objectOf(Object.fromEntries(needs)), required: [] }
  const one = unified(needs.map(([, output]) => output))
  return take === 'list' ? { list: one } : one
}
