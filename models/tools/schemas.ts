import { Ajv2020 } from 'ajv/dist/2020.js'

const ajv = new Ajv2020({ strict: false, validateFormats: false, addUsedSchema: false })

/** Whether this is a JSON Schema (2020-12, which also takes those of draft 7). Compiles nothing. */
export const isJsonSchema = (value: Record<string, unknown>): boolean => {
  const { $schema: _, ...schema } = value // another dialect would have to be fetched
  return ajv.validateSchema(schema) === true
}
