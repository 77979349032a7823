import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { compiledRegex } from './regex.ts'

// Whether values fit JSON Schemas. Runs in the process of expression-process.ts: a small schema can take very long
// (references that fan out, `uniqueItems` of many objects).

/** Where a value does not fit. */
export interface SchemaFault {
  pointer: string
  message: string
}

const linear = Object.assign((pattern: string) => compiledRegex(pattern), { code: 'linear' })
const options = { strict: false, validateFormats: false, addUsedSchema: false, code: { regExp: linear } }

const kept = new Map<string, ValidateFunction>()
const mostKept = 32

/** `key` names the version and the place of the schema. Throws if it is none, which validation of specs has refused. */
export function compiledSchema(key: string, schema: Record<string, unknown>): ValidateFunction {
  const known = kept.get(key)
  if (known) return known
  const { $schema: _, ...own } = schema
  const check = new Ajv2020(options).compile(own)
  if (kept.size >= mostKept) kept.clear()
  kept.set(key, check)
  return check
}

/** The first fault, or null. */
export function faultOf(check: ValidateFunction, value: unknown): SchemaFault | null {
  if (check(value)) return null
  const [error] = check.errors ?? []
  return { pointer: error?.instancePath ?? '', message: (error?.message ?? 'does not fit').slice(0, 500) }
}
