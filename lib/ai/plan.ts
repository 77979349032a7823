import type { Redacted } from './redaction.ts'
import { objectOf, type Type } from './types.ts'

// What validation learns of a spec, and a run needs again: the types of all values, and which nodes each node names.
// It is JSON, and is stored with a published version, so that a run asks for nothing that may have changed since.

export interface Plan {
  input: Type
  nodes: Record<string, NodePlan>
  output: { type: Type; uses: string[] }
  /** Absent: nothing is redacted. */
  redacted?: Redacted
}

export interface NodePlan {
  output: Type
  /** Of a `map`: what `item` is. */
  item?: Type
  /** The nodes that its expressions name: only their outputs are fetched. */
  uses: string[]
}

/** What expressions see of a node. It has an output if it succeeded, and an error if it failed. */
const nodeType = (output: Type): Type => ({
  object: { status: 'string', output, error: errorType },
  required: ['status'],
})
const errorType = objectOf({ code: 'string', message: 'string' })

/** The types of the variables of a node's expressions. */
export function variablesOf(
  plan: Pick<Plan, 'input'> & { nodes: Record<string, Pick<NodePlan, 'output'>> },
  uses: readonly string[],
  item?: Type,
): Record<string, Type> {
  const nodes = uses.map((name) => [name, nodeType(plan.nodes[name]?.output ?? 'any')] as const)
  return {
    input: plan.input,
    nodes: { object: Object.fromEntries(nodes), required: [...uses] },
    ...(item === undefined ? {} : { item, index: 'integer' as const }),
  }
}

/** Of a place in a document, as `retrieve` finds it. */
const passage: Type = {
  object: { text: 'string', score: 'number', document_id: 'string', document: 'string', place: 'any' },
  required: ['text', 'score', 'document_id'],
}

export const outputTypes = {
  retrieve: objectOf({ passages: { list: passage } }),
  http: (body: Type) => objectOf({ status: 'integer', headers: { map: 'string' }, body }),
  approve: objectOf({ by: 'string', comment: 'string', at: 'string' }),
} as const
