import { Ajv2020 } from 'ajv/dist/2020.js'
import { compiledRegex, RegexInvalid } from './regex.ts'

// JSON Schemas in specs.

const ajv = new Ajv2020({ strict: false, validateFormats: false, addUsedSchema: false })

/** What is wrong with a JSON Schema (2020-12, which also takes those of draft 7), or null. Compiles nothing. */
export function schemaFault(schema: Record<string, unknown>): string | null {
  const { $schema: _, ...own } = schema // another dialect would have to be fetched
  if (ajv.validateSchema(own) !== true)
    return `is not a JSON Schema: ${ajv.errorsText(ajv.errors, { dataVar: '' })}`
  return partFault(own)
}

/** References lead nowhere else, and patterns are RE2's. */
function partFault(part: unknown): string | null {
  if (typeof part !== 'object' || part === null) return null
  for (const [name, inner] of Object.entries(part)) {
    if (name === '$ref' && typeof inner === 'string' && !inner.startsWith('#')) {
      return `has a reference to another document: ${inner}`
    }
    const patterns = name === 'pattern' && typeof inner === 'string' ? [inner] : patternsOf(name, inner)
    const fault = patterns.map(patternFault).find((found) => found !== null) ?? partFault(inner)
    if (fault) return fault
  }
  return null
}

const patternsOf = (name: string, inner: unknown): string[] =>
  name === 'patternProperties' && typeof inner === 'object' && inner !== null ? Object.keys(inner) : []

function patternFault(pattern: string): string | null {
  try {
    compiledRegex(pattern)
    return null
  } catch (error) {
    if (error instanceof RegexInvalid) return error.message
    throw error
  }
}
