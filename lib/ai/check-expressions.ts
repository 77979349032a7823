import { ExpressionInvalid, nodesIn, type Scope } from './cel.ts'
import type { Visitor } from './check-node.ts'
import type { Code } from './findings.ts'
import { onlyExpression, partsOf, pointerTo, TemplateInvalid } from './templates.ts'
import { bounded, mismatchOf, objectOf, type Type, typeOfValue, unified } from './types.ts'

type Add = (pointer: string, code: Code, message: string) => void

/** Calls `each` with every expression, and reports those that have no form. Types are not known yet. */
export function collecting(
  each: (pointer: string, expression: string, nodes: Set<string>) => void,
  add: Add,
): Visitor {
  const expression = (pointer: string, text: string): Type => {
    attempt(pointer, add, () => each(pointer, text, nodesIn(text)))
    return 'any'
  }
  const text = (pointer: string, source: string): void => {
    attempt(pointer, add, () => {
      for (const part of partsOf(source)) if (typeof part === 'object') expression(pointer, part.expression)
    })
  }
  const value = (pointer: string, json: unknown): Type => {
    if (typeof json === 'string') text(pointer, json)
    else if (typeof json === 'object' && json !== null) {
      for (const [name, inner] of Object.entries(json)) value(pointerTo(pointer, name), inner)
    }
    return 'any'
  }
  const visitor: Visitor = { expression, text, value, ofItem: () => visitor }
  return visitor
}

/** Reports wrong types. `isUsable`: not if the expression has been reported already. */
export function checking(
  scopeOf: (item?: Type) => Scope,
  isUsable: (pointer: string) => boolean,
  add: Add,
  item?: Type,
): Visitor {
  let scope: Scope | undefined // most nodes of a large spec have no expressions to check
  const typeOf = (pointer: string, text: string): Type => {
    if (!isUsable(pointer)) return 'any'
    const known = (scope ??= scopeOf(item))
    return bounded(attempt(pointer, add, () => known.check(text)) ?? 'any')
  }
  const typeOfText = (pointer: string, source: string): Type => {
    const parts =
      attempt(
        pointer,
        () => {},
        () => partsOf(source),
      ) ?? []
    const types = parts.map((part) =>
      typeof part === 'string' ? 'string' : typeOf(pointer, part.expression),
    )
    return onlyExpression(parts) === null ? 'string' : (types[0] ?? 'any')
  }
  const typeOfJson = (pointer: string, json: unknown): Type => {
    if (typeof json === 'string') return typeOfText(pointer, json)
    if (typeof json !== 'object' || json === null) return typeOfValue(json)
    const inner = Object.entries(json).map(
      ([name, one]) => [name, typeOfJson(pointerTo(pointer, name), one)] as const,
    )
    const isList = Array.isArray(json)
    return bounded(
      isList ? { list: unified(inner.map(([, type]) => type)) } : objectOf(Object.fromEntries(inner)),
    )
  }
  const fitting = (pointer: string, type: Type, wanted: Type): Type => {
    const mismatch = mismatchOf(type, wanted)
    if (mismatch) add(pointerTo(pointer, ...mismatch.path), 'type_mismatch', mismatch.message)
    return type
  }
  return {
    expression: (pointer, text, wanted) => fitting(pointer, typeOf(pointer, text), wanted),
    text: (pointer, source) => void typeOfText(pointer, source),
    value: (pointer, json, wanted) => fitting(pointer, typeOfJson(pointer, json), wanted),
    ofItem: (inner) => checking(scopeOf, isUsable, add, inner),
  }
}

/** Null if it was reported. */
function attempt<T>(pointer: string, add: Add, find: () => T): T | null {
  try {
    return find()
  } catch (error) {
    if (error instanceof ExpressionInvalid) add(pointer, error.code, error.message)
    else if (error instanceof TemplateInvalid) add(pointer, 'expression_invalid', error.message)
    else throw error
    return null
  }
}
