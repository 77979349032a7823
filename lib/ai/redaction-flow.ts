import { astOf, isNode } from './cel.ts'
import { checkNode, type Visitor } from './check-node.ts'
import { edgeOf } from './graph.ts'
import type { ItemStep, NodeSpec } from './node-kinds.ts'
import { anything } from './programs.ts'
import {
  mark,
  part,
  type Redacted,
  type Redaction,
  redactionAt,
  redactionOfSchema,
  union,
} from './redaction.ts'
import type { Spec } from './spec.ts'
import { onlyExpression, partsOf } from './templates.ts'

// Where redacted values go: what a node makes of one is redacted as well, unless its `output_schema` shows it.

type Step = NodeSpec | ItemStep
/** Of the variables of expressions. */
type Scope = Record<string, Redaction>

/** What a called workflow redacts of its output. */
type OfWorkflow = (reference: string, version: number | null) => Redaction

/**
 * Follows redacted values through a valid spec. `order`: each node after all that it names. Null: nothing is redacted. A node
 * that has an entry is given redacted values, or makes some.
 */
export function redactedIn(spec: Spec, order: readonly string[], ofWorkflow: OfWorkflow): Redacted | null {
  const input = redactionOfSchema(spec.input_schema)
  const nodes: Redacted['nodes'] = {}
  for (const name of order) {
    const node = spec.nodes[name]
    if (!node) continue
    const scope = scopeOf(input, nodes)
    const output = outputOf(node, scope, nodes, ofWorkflow)
    const is_given = isGiven(node, scope)
    if (output === null && !is_given) continue
    nodes[name] = {
      is_given,
      output,
      ...(node.kind === 'approve' ? { message: markedText(node.message, scope) } : {}),
    }
  }
  const output = ofValue(spec.output, scopeOf(input, nodes))
  return input === null && Object.keys(nodes).length === 0 ? null : { input, nodes, output }
}

const scopeOf = (input: Redaction, nodes: Redacted['nodes']): Scope => ({
  input,
  nodes: part(
    Object.fromEntries(Object.entries(nodes).map(([name, { output }]) => [name, part({ output }, null)])),
    null,
  ),
})

/** What `item` is in a map. */
const withItem = (map: Extract<NodeSpec, { kind: 'map' }>, scope: Scope): Scope => ({
  ...scope,
  item: redactionAt(ofExpression(map.items, scope), null),
})

function outputOf(node: Step, scope: Scope, nodes: Redacted['nodes'], ofWorkflow: OfWorkflow): Redaction {
  switch (node.kind) {
    case 'template':
      return ofValue(node.value, scope)
    case 'llm': {
      const isMade = isGiven(node, scope)
      return node.output_schema ? redactionOfSchema(node.output_schema, isMade) : isMade || null
    }
    case 'http': {
      const isMade = isGiven(node, scope)
      const body = node.output_schema ? redactionOfSchema(node.output_schema, isMade) : isMade || null
      return part({ status: null, body }, isMade || null)
    }
    case 'retrieve':
    case 'tool':
      return isGiven(node, scope) || null
    case 'workflow':
      return union([isGiven(node, scope) || null, ofWorkflow(node.workflow, node.version ?? null)])
    case 'map':
      return part({}, outputOf(node.do, withItem(node, scope), nodes, ofWorkflow))
    case 'merge':
      return merged(node, nodes)
    case 'switch':
    case 'approve':
      return null // the names of cases are the author's, and a decision is a person's
    default:
      return node satisfies never
  }
}

function merged(
  { needs = [], take }: Extract<NodeSpec, { kind: 'merge' }>,
  nodes: Redacted['nodes'],
): Redaction {
  const outputs = needs.map((need) => {
    const { from } = edgeOf(need)
    return [from, nodes[from]?.output ?? null] as const
  })
  if (take === 'object') return part(Object.fromEntries(outputs), null)
  const one = union(outputs.map(([, output]) => output))
  return take === 'list' ? part({}, one) : one
}

/** Whether any expression of a node has a redacted value. */
function isGiven(node: Step, scope: Scope): boolean {
  let found = false
  const note = (redaction: Redaction): void => {
    found ||= redaction !== null
  }
  const visitor = (its: Scope): Visitor => ({
    expression: (_, text) => {
      note(ofExpression(text, its))
      return 'any'
    },
    text: (_, text) => note(ofText(text, its)),
    value: (_, value) => {
      note(ofValue(value, its))
      return 'any'
    },
    ofItem: () => visitor(node.kind === 'map' ? withItem(node, its) : its),
  })
  checkNode(node, '', visitor(scope), anything)
  if ('when' in node && node.when !== undefined) note(ofExpression(node.when, scope))
  return found
}

/** Of JSON with expressions in its texts. */
function ofValue(value: unknown, scope: Scope): Redaction {
  if (typeof value === 'string') return ofText(value, scope)
  if (typeof value !== 'object' || value === null) return null
  const inner = Object.entries(value).map(([name, one]) => [name, ofValue(one, scope)] as const)
  if (Array.isArray(value)) return part({}, union(inner.map(([, one]) => one)))
  return part(Object.fromEntries(inner), null)
}

function ofText(text: string, scope: Scope): Redaction {
  const parts = partsOf(text)
  const only = onlyExpression(parts)
  if (only !== null) return ofExpression(only, scope)
  return parts.some((one) => isRedacted(one, scope)) || null
}

const isRedacted = (one: ReturnType<typeof partsOf>[number], scope: Scope): boolean =>
  typeof one === 'object' && ofExpression(one.expression, scope) !== null

function markedText(text: string, scope: Scope): string {
  const parts = partsOf(text).map((one) => {
    if (isRedacted(one, scope)) return mark
    return typeof one === 'string' ? one.replaceAll('${', () => '$${') : `\${${one.expression}}`
  })
  return parts.join('')
}

/** A reference has the redaction of what it names. What is made of anything redacted is redacted. */
const ofExpression = (text: string, scope: Scope): Redaction => ofAst(astOf(text), scope)

function ofAst(ast: unknown, scope: Scope): Redaction {
  const named = ofReference(ast, scope)
  if (named !== undefined) return named
  if (Array.isArray(ast)) return ast.some((inner) => ofAst(inner, scope) !== null) || null
  if (!isNode(ast)) return null
  if (ast.op !== '?:') return ofAst(ast.args, scope) === null ? null : true
  const [condition, ...branches] = ast.args
  if (ofAst(condition, scope) !== null) return true
  return union(branches.map((branch) => ofAst(branch, scope)))
}

/** Of `input.a["b"][0]`; undefined: the expression is no such reference. */
function ofReference(ast: unknown, scope: Scope): Redaction | undefined {
  if (!isNode(ast)) return undefined
  if (ast.op === 'id') return scope[ast.args] ?? null
  if (ast.op !== '.' && ast.op !== '[]') return undefined
  const [from, step] = ast.args
  const outer = ofReference(from, scope)
  if (outer === undefined) return undefined
  if (typeof step === 'string') return redactionAt(outer, step)
  if (step.op !== 'value') return undefined
  return redactionAt(outer, typeof step.args === 'string' ? step.args : null)
}
