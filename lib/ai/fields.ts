import { z } from 'zod'
import { bounds } from './bounds.ts'

// Forms that several parts of a spec use.

const reserved = ['true', 'false', 'null', 'in', 'constructor', 'prototype']

/** A name as expressions write it after a dot. */
export const NodeName = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,62}$/, 'must be a letter, then letters, digits and _ (at most 63, no capitals)')
  .refine((name) => !reserved.includes(name), 'is a word of the expression language')

export const JsonSchema = z.record(z.string(), z.unknown()).describe('JSON Schema, 2020-12')
/** Of a JSON Schema of values of runs. */
export const redacting = '`"x-redact": true` in it hides a value from readers of the run'
export const Expression = z.string().min(1).max(bounds.expressionChars).describe('CEL expression')
export const Template = z
  .string()
  .max(bounds.templateChars)
  .describe('Text, with expressions: `Hello ${input.name}`')
const Json = z.unknown().refine((value) => value !== undefined, 'is required')
export const Value = Json.describe('Any JSON, with expressions in its texts')
export const Constant = Json.describe('Any JSON, as it stands')
export const Reference = z.string().min(1).max(100)
