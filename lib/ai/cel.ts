import { type ASTNode, Environment, EvaluationError, ParseError, TypeError } from '@marcbachmann/cel-js'
import { bounds } from './bounds.ts'
import { type MakeMessage, Message, toCel } from './cel-values.ts'
import { compiledRegex, matchesRegex, RegexInvalid } from './regex.ts'
import type { ObjectType, Type } from './types.ts'

// Expressions are CEL, checked by type before they run. What differs from CEL elsewhere:
// - `matches()` is refused: here it is a JavaScript regex, which took 31 s for 29 characters. `re()` is RE2's.
// - `int` and `double` may be mixed, because numbers of JSON without a schema are doubles.
// - there are no bytes: JSON has none, and their memory is outside the bound of V8's heap.

/** What is wrong with an expression before it runs. */
export class ExpressionInvalid extends Error {
  override readonly name = 'ExpressionInvalid'
  readonly code: 'expression_invalid' | 'unknown_reference' | 'type_mismatch'

  constructor(code: ExpressionInvalid['code'], message: string, cause?: unknown) {
    super(message, { cause })
    this.code = code
  }
}

/** The expression failed while it ran. `message` is for the workflow's author. */
export class ExpressionFailed extends Error {
  override readonly name = 'ExpressionFailed'
}

const numeric = (compute: (a: number, b: number) => number) => (a: number | bigint, b: number | bigint) =>
  compute(Number(a), Number(b))
const add = numeric((a, b) => a + b)
const subtract = numeric((a, b) => a - b)
const multiply = numeric((a, b) => a * b)
const divide = numeric((a, b) => a / b)
const remainder = numeric((a, b) => a % b)

const base = new Environment({
  homogeneousAggregateLiterals: false,
  limits: { maxAstNodes: 1_000, maxDepth: 50, maxListElements: 500, maxMapEntries: 500, maxCallArguments: 8 },
})
  .registerFunction('re(string, string): bool', { handler: matchesRegex, async: false })
  .registerOperator('int == double', (a: bigint, b: number) => Number(a) === b)
  .registerOperator('double % double: double', remainder)
for (const pair of [['int', 'double'] as const, ['double', 'int'] as const]) {
  const [left, right] = pair
  base
    .registerOperator(`${left} + ${right}: double`, add)
    .registerOperator(`${left} - ${right}: double`, subtract)
    .registerOperator(`${left} * ${right}: double`, multiply)
    .registerOperator(`${left} / ${right}: double`, divide)
    .registerOperator(`${left} % ${right}: double`, remainder)
}

/** Throws ExpressionInvalid. */
export const astOf = (expression: string): ASTNode => parse(base, expression).ast

/** The nodes that an expression names. Throws ExpressionInvalid. */
export function nodesIn(expression: string): Set<string> {
  if (expression.length > bounds.expressionChars) {
    throw new ExpressionInvalid('expression_invalid', `has more than ${bounds.expressionChars} characters`)
  }
  const names = new Set<string>()
  const left: unknown[] = [astOf(expression)]
  while (left.length > 0) {
    const part = left.pop()
    if (Array.isArray(part)) left.push(...(part as unknown[]))
    else if (isNode(part)) visit(part, names, left)
  }
  return names
}

function visit(node: ASTNode, names: Set<string>, left: unknown[]): void {
  const named = namedNode(node)
  if (named !== null) {
    names.add(named)
    return
  }
  refuse(node)
  left.push(node.args)
}

/** `nodes.x` and `nodes["x"]`. */
function namedNode(node: ASTNode): string | null {
  if (node.op !== '.' && node.op !== '[]') return null
  const [from, name] = node.args
  if (from.op !== 'id' || from.args !== 'nodes') return null
  if (typeof name === 'string') return name
  return name.op === 'value' && typeof name.args === 'string' ? name.args : null
}

function refuse(node: ASTNode): void {
  if (node.op === 'id' && node.args === 'nodes') {
    throw new ExpressionInvalid('expression_invalid', '`nodes` must be followed by the name of a node')
  }
  if (node.op === 'value' && node.args instanceof Uint8Array) {
    throw new ExpressionInvalid('expression_invalid', 'has bytes, which expressions do not have')
  }
  if (node.op !== 'call' && node.op !== 'rcall') return
  const [name] = node.args
  if (name === 'bytes')
    throw new ExpressionInvalid('expression_invalid', 'has bytes, which expressions do not have')
  if (name === 'matches') {
    throw new ExpressionInvalid(
      'expression_invalid',
      'has matches(): use re(text, pattern) instead, which is RE2',
    )
  }
  if (name === 're' && node.op === 'call') refusePattern(node.args[1][1])
}

/** A pattern that is known beforehand is compiled beforehand. */
function refusePattern(pattern: ASTNode | undefined): void {
  if (pattern?.op !== 'value' || typeof pattern.args !== 'string') return
  try {
    compiledRegex(pattern.args)
  } catch (error) {
    if (error instanceof RegexInvalid) throw new ExpressionInvalid('expression_invalid', error.message, error)
    throw error
  }
}

export const isNode = (value: unknown): value is ASTNode =>
  typeof value === 'object' && value !== null && 'op' in value && 'args' in value

type Parsed = ReturnType<Environment['parse']>
type Maker = (source: Record<string, unknown>) => Message

function parse(environment: Environment, expression: string): Parsed {
  try {
    return environment.parse(expression)
  } catch (error) {
    throw invalid(error)
  }
}

function invalid(error: unknown): ExpressionInvalid {
  if (error instanceof ParseError) return new ExpressionInvalid('expression_invalid', saying(error), error)
  if (error instanceof TypeError) {
    const isUnknown = error.code === 'unknown_variable' || error.code === 'no_such_key'
    return new ExpressionInvalid(isUnknown ? 'unknown_reference' : 'type_mismatch', saying(error), error)
  }
  // The parser or the checker ran out of stack, or found something that it does not know.
  const reason = error instanceof Error && !(error instanceof RangeError) ? error.message : 'it is too deep'
  return new ExpressionInvalid('expression_invalid', `cannot be checked: ${reason}`, error)
}

function saying({ summary, range }: ParseError | TypeError | EvaluationError): string {
  const place = range ? ` (at character ${range.start + 1})` : ''
  return `${summary.slice(0, 500)}${place}`
}

/** Variables with their types, and the expressions over them. */
export class Scope {
  readonly #environment = base.clone()
  /** The declared object types by CEL's name. */
  readonly #types = new Map<string, ObjectType>()
  /** Equal types are one type, so that both branches of `?:` may have them. */
  readonly #equal = new Map<string, { name: string; make: Maker }>()
  readonly #makers = new Map<Type, Maker>()
  readonly #variables: Record<string, Type>
  readonly #parsed = new Map<string, Parsed>()

  constructor(variables: Record<string, Type>) {
    this.#variables = variables
    for (const [name, type] of Object.entries(variables)) {
      this.#environment.registerVariable(name, this.#declare(type))
    }
  }

  /** The type of the expression's value. Throws ExpressionInvalid. */
  check(expression: string): Type {
    nodesIn(expression)
    const { valid, type, error } = this.#parse(expression).check()
    if (!valid) throw invalid(error)
    return this.#typeOf(type ?? 'dyn')
  }

  /** The variables of these JSON values, for `evaluate`. */
  values(given: Record<string, unknown>): Record<string, unknown> {
    const entries = Object.entries(this.#variables).map(
      ([name, type]) => [name, toCel(given[name], type, this.#make)] as const,
    )
    return Object.fromEntries(entries)
  }

  /** A value of CEL. Throws ExpressionInvalid and ExpressionFailed. */
  evaluate(expression: string, values: Record<string, unknown>): unknown {
    const parsed = this.#parsed.get(expression)
    if (!parsed) this.check(expression)
    try {
      return (parsed ?? this.#parse(expression))(values)
    } catch (error) {
      if (error instanceof EvaluationError) throw new ExpressionFailed(saying(error), { cause: error })
      if (error instanceof RegexInvalid) throw new ExpressionFailed(error.message, { cause: error })
      // A text or list that is too long, a time zone that does not exist.
      if (error instanceof RangeError) throw new ExpressionFailed(error.message, { cause: error })
      throw error
    }
  }

  readonly #make: MakeMessage = (type, source) => {
    const maker = this.#makers.get(type)
    if (!maker) throw new Error('The type was not declared')
    return maker(source)
  }

  #parse(expression: string): Parsed {
    const parsed = this.#parsed.get(expression) ?? parse(this.#environment, expression)
    this.#parsed.set(expression, parsed)
    return parsed
  }

  /** CEL's name of a type. */
  #declare(type: Type): string {
    if (typeof type === 'string') return celNames[type]
    if ('list' in type) return `list<${this.#declare(type.list)}>`
    if ('map' in type) return `map<string, ${this.#declare(type.map)}>`
    return this.#declareObject(type)
  }

  #declareObject(type: ObjectType): string {
    const key = JSON.stringify(type)
    const { name, make } = this.#equal.get(key) ?? this.#register(type)
    this.#equal.set(key, { name, make })
    this.#makers.set(type, make)
    return name
  }

  #register(type: ObjectType): { name: string; make: Maker } {
    const declared = {
      names: new Set(Object.keys(type.object)),
      toValue: (name: string, value: unknown) => toCel(value, type.object[name] ?? 'any', this.#make),
    }
    class Declared extends Message {
      constructor(source: Record<string, unknown>) {
        super(source, declared)
      }
    }
    const fields = Object.entries(type.object).map(([name, inner]) => [name, this.#declare(inner)] as const)
    const name = `T${this.#types.size}`
    this.#types.set(name, type)
    this.#environment.registerType(name, { ctor: Declared, fields: Object.fromEntries(fields) })
    return { name, make: (source) => new Declared(source) }
  }

  /** The type of CEL's name; `any` for what JSON does not have. */
  #typeOf(name: string): Type {
    const [, list] = /^list<(.+)>$/.exec(name) ?? []
    if (list) return { list: this.#typeOf(list) }
    const [, value] = /^map<string, (.+)>$/.exec(name) ?? []
    if (value) return { map: this.#typeOf(value) }
    if (name === 'list') return { list: 'any' }
    if (name === 'google.protobuf.Timestamp') return 'string'
    return this.#types.get(name) ?? typeNames[name] ?? 'any'
  }
}

const celNames = {
  any: 'dyn',
  string: 'string',
  integer: 'int',
  number: 'double',
  boolean: 'bool',
  null: 'null',
} as const

const typeNames: Record<string, Type> = Object.fromEntries(
  Object.entries(celNames).map(([type, name]) => [name, type as keyof typeof celNames]),
)
