// What validation finds.

export const codes = [
  'invalid_field',
  'too_large',
  'schema_invalid',
  'unknown_reference',
  'cycle',
  'unreachable',
  'expression_invalid',
  'type_mismatch',
  'connector_missing',
  'model_unknown',
  'tool_missing',
  'tool_not_callable',
  'collection_missing',
  'workflow_missing',
  'depth_too_high',
  'budget_too_high',
  'budget_too_low',
] as const
/** docs/ai-workflows.md says what each means. */
export type Code = (typeof codes)[number]

/** `pointer` is a JSON pointer into the spec. */
export interface Finding {
  pointer: string
  code: Code
  message: string
}

/** Errors by node, and those that belong to no node. */
export class Findings {
  readonly others: Finding[] = []
  readonly #nodes = new Map<string, Finding[]>()
  #left = mostFindings

  /** `node` is null for the rest of the spec. The same place gets the same code once. */
  add(node: string | null, pointer: string, code: Code, message: string): void {
    const list = node === null ? this.others : this.#of(node)
    if (list.some((known) => known.pointer === pointer && known.code === code)) return
    if (this.#left-- > 0) list.push({ pointer, code, message })
  }

  has(node: string, code: Code): boolean {
    return this.#of(node).some((known) => known.code === code)
  }

  /** Of each node that has some. */
  get nodes(): Record<string, Finding[]> {
    return Object.fromEntries([...this.#nodes].filter(([, list]) => list.length > 0))
  }

  get isEmpty(): boolean {
    return this.others.length === 0 && [...this.#nodes.values()].every((list) => list.length === 0)
  }

  #of(node: string): Finding[] {
    const list = this.#nodes.get(node) ?? []
    this.#nodes.set(node, list)
    return list
  }
}

const mostFindings = 1_000
