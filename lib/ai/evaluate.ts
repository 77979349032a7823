import { type ExpressionFailed, type ExpressionInvalid, Scope } from './cel.ts'
import { newRoom, type NoJson, type Room, takeCharacters, toJson } from './cel-values.ts'
import { onlyExpression, type Part, partsOf, pointerTo } from './templates.ts'
import type { Type } from './types.ts'

// The values of a node's expressions. Runs in the process of expression-process.ts.

/** What to evaluate: one expression, a text with expressions, or any JSON with expressions in its texts. */
export type Wanted = { expression: string } | { text: string } | { value: unknown }

/** A part of what was wanted failed. */
export class EvaluationFailed extends Error {
  override readonly name = 'EvaluationFailed'
  readonly pointer: string
  readonly isTooLarge: boolean

  constructor(pointer: string, cause: ExpressionFailed | ExpressionInvalid | NoJson) {
    super(cause.message, { cause })
    this.pointer = pointer
    this.isTooLarge = 'isTooLarge' in cause && cause.isTooLarge
  }
}

/** Values of CEL of all that is wanted, by JSON pointer. Throws EvaluationFailed. */
export function evaluateAll(
  scope: Scope,
  wanted: Record<string, Wanted>,
  given: Record<string, unknown>,
): Record<string, unknown> {
  const work: Work = { scope, values: scope.values(given), room: newRoom() }
  const entries = Object.entries(wanted).map(([pointer, one]) => {
    if ('value' in one) return [pointer, filled(one.value, pointer, work)] as const
    if ('text' in one) return [pointer, at(pointer, () => joined(partsOf(one.text), work))] as const
    return [pointer, at(pointer, () => scope.evaluate(one.expression, work.values))] as const
  })
  return Object.fromEntries(entries)
}

/** The JSON text of these values of CEL. Throws EvaluationFailed. */
export function jsonOf(values: Record<string, unknown>): string {
  const room = newRoom()
  const entries = Object.entries(values).map(
    ([pointer, value]) => [pointer, at(pointer, () => toJson(value, room))] as const,
  )
  return JSON.stringify(Object.fromEntries(entries))
}

interface Work {
  scope: Scope
  values: Record<string, unknown>
  /** Characters that texts may still have. */
  room: Room
}

/** The value with the expressions in its texts evaluated. */
function filled(value: unknown, pointer: string, work: Work): unknown {
  if (typeof value === 'string') return at(pointer, () => filledText(value, work))
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) {
    return value.map((item, index) => filled(item, pointerTo(pointer, index), work))
  }
  const entries = Object.entries(value).map(
    ([name, inner]) => [name, filled(inner, pointerTo(pointer, name), work)] as const,
  )
  return Object.fromEntries(entries)
}

function filledText(text: string, work: Work): unknown {
  const parts = partsOf(text)
  const only = onlyExpression(parts)
  return only === null ? joined(parts, work) : work.scope.evaluate(only, work.values)
}

function joined(parts: readonly Part[], { scope, values, room }: Work): string {
  let all = ''
  for (const part of parts) {
    const piece = typeof part === 'string' ? part : shown(scope.evaluate(part.expression, values))
    takeCharacters(room, piece)
    all += piece
  }
  return all
}

/** In a text a string stands as it is, everything else as JSON. */
const shown = (value: unknown): string =>
  typeof value === 'string' ? value : JSON.stringify(toJson(value, newRoom()))

function at<T>(pointer: string, evaluate: () => T): T {
  try {
    return evaluate()
  } catch (error) {
    if (isExpected(error)) throw new EvaluationFailed(pointer, error)
    throw error
  }
}

const isExpected = (error: unknown): error is ExpressionFailed | ExpressionInvalid | NoJson =>
  error instanceof Error && ['ExpressionFailed', 'ExpressionInvalid', 'NoJson'].includes(error.name)

/** Scopes of the nodes that were evaluated last, by a key that names spec and node. */
export class Scopes {
  readonly #kept = new Map<string, Scope>()

  of(key: string, variables: Record<string, Type>): Scope {
    const scope = this.#kept.get(key) ?? new Scope(variables)
    this.#kept.delete(key)
    this.#kept.set(key, scope)
    const [oldest] = this.#kept.keys()
    if (this.#kept.size > mostScopes && oldest !== undefined) this.#kept.delete(oldest)
    return scope
  }
}

const mostScopes = 64
