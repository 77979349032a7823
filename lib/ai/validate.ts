import { bounds } from './bounds.ts'
import { Scope } from './cel.ts'
import { checking, collecting } from './check-expressions.ts'
import { checkNode, type Known, type Visitor } from './check-node.ts'
import { type Finding, Findings } from './findings.ts'
import { edgeOf } from './graph.ts'
import type { Lookups } from './lookups.ts'
import type { NodeSpec } from './node-kinds.ts'
import { type Plan, variablesOf } from './plan.ts'
import { redactionFault } from './redaction.ts'
import { redactedIn } from './redaction-flow.ts'
import { schemaFault } from './schemas.ts'
import type { Spec } from './spec.ts'
import { pointerTo } from './templates.ts'
import { bounded, isLargerThan, mismatchOf, objectOf, type Type, typeOfSchema, typeOfValue } from './types.ts'
import { checkBudget } from './validate-budget.ts'
import { checkForm, type Draft } from './validate-form.ts'
import { casesOf, type CheckedGraph, checkGraph } from './validate-graph.ts'
import { checkReferences, type Found, keyOf } from './validate-references.ts'

export interface Validation {
  /** The errors of each node that has some. */
  nodes: Record<string, Finding[]>
  /** Errors that belong to no node. */
  others: Finding[]
  /** Null if there is an error. */
  valid: { spec: Spec; plan: Plan } | null
}

/** Finds all errors of a draft at once. The draft is any JSON. Rejects only if a lookup does. */
export async function validate(draft: unknown, lookups: Lookups): Promise<Validation> {
  const findings = new Findings()
  const form = checkForm(draft, findings)
  const plan = form && (await checkDraft(form, lookups, findings))
  const valid = plan && findings.isEmpty ? { spec: draft as Spec, plan } : null
  return { nodes: findings.nodes, others: findings.others, valid }
}

async function checkDraft({ spec, nodes }: Draft, lookups: Lookups, findings: Findings): Promise<Plan> {
  const models = spec.models ?? {}
  checkSchemas(spec, nodes, findings)
  if (spec.budget) checkBudget(spec.budget, models, nodes, lookups.most, findings)
  const found = await checkReferences(models, nodes, lookups, findings)
  const graph = checkGraph(nodes, findings)
  const checker = new ExpressionChecker(nodes, graph, found, typeOfSchema(spec.input_schema), findings)
  const plan = checker.check(spec.output)
  if (!findings.isEmpty) return plan
  const redacted = redactedIn({ ...spec, nodes } as Spec, graph.order, (reference, version) => {
    const called = found.workflows.get(keyOf(reference, version))
    return called?.redaction ?? null
  })
  return redacted ? { ...plan, redacted } : plan
}

function checkSchemas(spec: Draft['spec'], nodes: Draft['nodes'], findings: Findings): void {
  const check = (node: string | null, pointer: string, schema: Record<string, unknown> | undefined): void => {
    const fault = schema && (schemaFault(schema) ?? redactionFault(schema))
    if (fault) findings.add(node, pointer, 'schema_invalid', fault)
  }
  check(null, '/input_schema', spec.input_schema)
  for (const [name, node] of Object.entries(nodes)) {
    const pointer = pointerTo('', 'nodes', name)
    if (node && 'output_schema' in node) check(name, `${pointer}/output_schema`, node.output_schema)
    if (node?.kind === 'map' && 'output_schema' in node.do) {
      check(name, `${pointer}/do/output_schema`, node.do.output_schema)
    }
  }
}

/** Checks the expressions of nodes in the order of their needs: types flow from one to the next. */
class ExpressionChecker {
  readonly #nodes: Draft['nodes']
  readonly #graph: CheckedGraph
  readonly #found: Found
  readonly #findings: Findings
  readonly #plan: Plan
  #charactersLeft: number = bounds.allExpressionChars

  constructor(nodes: Draft['nodes'], graph: CheckedGraph, found: Found, input: Type, findings: Findings) {
    this.#nodes = nodes
    this.#graph = graph
    this.#found = found
    this.#findings = findings
    this.#plan = { input, nodes: {}, output: { type: 'any', uses: [] } }
  }

  check(output: unknown): Plan {
    for (const name of this.#graph.order) {
      const node = this.#nodes[name]
      if (node) this.#checkNode(name, node)
    }
    const every = new Set(Object.keys(this.#nodes))
    const visit = (at: Visitor): Type => at.value('/output', output ?? null, 'any')
    const { type, uses } = this.#checkPart(null, every, visit)
    this.#plan.output = { type, uses }
    if (JSON.stringify(this.#plan).length > bounds.planBytes) {
      this.#findings.add(null, '/nodes', 'too_large', 'has outputs with too many fields')
    }
    return this.#plan
  }

  #checkNode(name: string, node: NodeSpec): void {
    const pointer = pointerTo('', 'nodes', name)
    let item: Type | undefined
    const visit = (at: Visitor): Type => {
      if (node.when !== undefined) at.expression(`${pointer}/when`, node.when, 'boolean')
      const noting: Visitor = { ...at, ofItem: (type) => at.ofItem((item = type)) }
      return checkNode(node, pointer, noting, this.#knownTo(node))
    }
    const ancestors = this.#graph.ancestors[name] ?? new Set()
    const { type, uses } = this.#checkPart(name, ancestors, visit)
    this.#plan.nodes[name] = { output: bounded(type), uses, ...(item === undefined ? {} : { item }) }
    this.#checkOnError(name, node, type)
  }

  /** Collects the references of a node (or of the run's output), then checks types where they are known. */
  #checkPart(
    node: string | null,
    ancestors: ReadonlySet<string>,
    visit: (at: Visitor) => Type,
  ): { type: Type; uses: string[] } {
    const uses = new Set<string>()
    const reported = new Set<string>()
    const add: Parameters<typeof collecting>[1] = (pointer, code, message) => {
      reported.add(pointer)
      this.#findings.add(node, pointer, code, message)
    }
    const note = (pointer: string, expression: string, names: Set<string>): void => {
      this.#charactersLeft -= expression.length
      for (const name of names) {
        const fault = this.#referenceFault(name, ancestors)
        if (fault) add(pointer, 'unknown_reference', fault)
        else uses.add(name)
      }
    }
    visit(collecting(note, add))
    const names = [...uses].toSorted()
    if (this.#isTooMuch(names)) return { type: 'any', uses: names }
    const scopeOf = (item?: Type) => new Scope(variablesOf(this.#plan, names, item))
    const type = visit(checking(scopeOf, (pointer) => !reported.has(pointer), add))
    return { type, uses: names }
  }

  #referenceFault(name: string, ancestors: ReadonlySet<string>): string | null {
    if (!Object.hasOwn(this.#nodes, name)) return `there is no node ${name}`
    return ancestors.has(name)
      ? null
      : `${name} is not among the nodes that this one needs, directly or indirectly`
  }

  /** Bounds the time that checking takes. */
  #isTooMuch(uses: readonly string[]): boolean {
    if (this.#charactersLeft < 0) {
      const most = bounds.allExpressionChars
      this.#findings.add(
        null,
        '/nodes',
        'too_large',
        `has expressions of more than ${most} characters together`,
      )
      return true
    }
    const types = uses.map((name) => [name, this.#plan.nodes[name]?.output ?? 'any'] as const)
    if (!isLargerThan(objectOf(Object.fromEntries(types)), bounds.typesOfNode)) return false
    this.#findings.add(null, '/nodes', 'too_large', 'refers to values with too many fields')
    return true
  }

  #knownTo(node: NodeSpec): Known {
    const anything = { input: 'any', output: 'any' } as const
    const outputOf = (name: string): Type => this.#plan.nodes[name]?.output ?? 'any'
    return {
      tool: (reference, name) => {
        const schemas = this.#found.tools.get(keyOf(reference, name))
        if (!schemas) return anything
        return { input: typeOfSchema(schemas.input_schema), output: typeOfSchema(schemas.output_schema) }
      },
      workflow: (reference, version) => this.#found.workflows.get(keyOf(reference, version)) ?? anything,
      needs: [...new Set((node.needs ?? []).map((need) => edgeOf(need).from))].map((name) => [
        name,
        outputOf(name),
      ]),
    }
  }

  #checkOnError(name: string, node: NodeSpec, output: Type): void {
    const pointer = pointerTo('', 'nodes', name)
    this.#checkFallback(name, `${pointer}/on_error`, node.on_error, output)
    if (node.kind === 'map' && typeof output === 'object' && 'list' in output) {
      this.#checkFallback(name, `${pointer}/do/on_error`, node.do.on_error, output.list)
    }
    const handling = node.on_error
    if (node.kind !== 'switch' || typeof handling !== 'object' || !('value' in handling)) return
    if (casesOf(node).some((one) => one === handling.value)) return
    this.#findings.add(name, `${pointer}/on_error/value`, 'unknown_reference', 'is not a case of the switch')
  }

  #checkFallback(name: string, pointer: string, handling: NodeSpec['on_error'], output: Type): void {
    if (typeof handling !== 'object' || !('value' in handling)) return
    const mismatch = mismatchOf(typeOfValue(handling.value), output)
    if (!mismatch) return
    const place = pointerTo(`${pointer}/value`, ...mismatch.path)
    this.#findings.add(name, place, 'type_mismatch', mismatch.message)
  }
}
