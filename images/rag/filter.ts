import { invalid, StoreError } from './errors.ts'
import { type Condition, type FieldType, type FieldValue, type Filter, limits } from './store.ts'
import type { Metadata, MetadataSchema } from './store.ts'

/** Whether a document is searched. */
export type Test = (metadata: Metadata) => boolean
type ValueTest = (value: FieldValue | undefined) => boolean

const invalidFilter = (pointer: string, message: string): StoreError =>
  new StoreError('invalid_filter', message, { pointer })

/** Whether a value is one of the type. A number is finite. */
const fits = (value: unknown, type: FieldType): value is FieldValue =>
  typeof value === type &&
  (type !== 'number' || Number.isFinite(value)) &&
  (type !== 'string' || (value as string).length <= limits.fieldText)

const describe: Record<FieldType, string> = {
  string: `a text of at most ${limits.fieldText} characters`,
  number: 'a finite number',
  boolean: 'true or false',
}

/** Throws `invalid_input` unless each field is in the schema, and of its type. */
export function checkMetadata(metadata: Metadata, schema: MetadataSchema): void {
  for (const [field, value] of Object.entries(metadata)) {
    const type = typeOf(schema, field)
    if (!type) throw invalid(`/metadata/${field}`, 'The collection’s metadata schema has no such field')
    if (!fits(value, type)) throw invalid(`/metadata/${field}`, `The field has to be ${describe[type]}`)
  }
}

/** An own property: a field may be called `constructor`. */
const typeOf = (schema: MetadataSchema, field: string): FieldType | undefined =>
  Object.hasOwn(schema, field) ? schema[field] : undefined

/** Throws `invalid_filter` with the place of what the schema does not allow. */
export function compileFilter(filter: Filter, schema: MetadataSchema): Test {
  const fields = Object.entries(filter)
  if (fields.length > limits.fields)
    throw invalidFilter('/filter', `A filter has at most ${limits.fields} fields`)
  const tests = fields.map(([field, wanted]) => {
    const pointer = `/filter/${field}`
    const type = typeOf(schema, field)
    if (!type) throw invalidFilter(pointer, 'The collection’s metadata schema has no such field')
    return { field, test: compileField(pointer, type, wanted) }
  })
  return (metadata) => tests.every(({ field, test }) => test(metadata[field]))
}

function compileField(pointer: string, type: FieldType, wanted: unknown): ValueTest {
  const condition = isObject(wanted) ? wanted : { eq: wanted }
  const parts = Object.entries(condition).filter(([, value]) => value !== undefined)
  if (!parts.length) throw invalidFilter(pointer, 'The condition is empty')
  const tests = parts.map(([operator, operand]) => {
    if (!Object.hasOwn(operators, operator))
      throw invalidFilter(`${pointer}/${operator}`, `The operators are ${Object.keys(operators).join(', ')}`)
    return operators[operator as keyof Condition](`${pointer}/${operator}`, type, operand)
  })
  return (value) => tests.every((test) => test(value))
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const operators: Record<keyof Condition, (pointer: string, type: FieldType, operand: unknown) => ValueTest> =
  {
    eq(pointer, type, operand) {
      if (!fits(operand, type)) throw invalidFilter(pointer, `The field is ${describe[type]}`)
      return (value) => value === operand
    },
    in(pointer, type, operand) {
      if (!Array.isArray(operand) || operand.length > limits.filterValues)
        throw invalidFilter(pointer, `This takes a list of at most ${limits.filterValues} values`)
      if (!operand.every((one) => fits(one, type)))
        throw invalidFilter(pointer, `Each value has to be ${describe[type]}`)
      const values = new Set<unknown>(operand)
      return (value) => values.has(value)
    },
    exists(pointer, _, operand) {
      if (typeof operand !== 'boolean') throw invalidFilter(pointer, 'This takes true or false')
      return (value) => (value !== undefined) === operand
    },
    gt: range((value, bound) => value > bound),
    gte: range((value, bound) => value >= bound),
    lt: range((value, bound) => value < bound),
    lte: range((value, bound) => value <= bound),
  }

function range(holds: (value: number, bound: number) => boolean) {
  return (pointer: string, type: FieldType, operand: unknown): ValueTest => {
    if (type !== 'number') throw invalidFilter(pointer, 'Only numbers have ranges')
    if (!fits(operand, 'number')) throw invalidFilter(pointer, 'A bound is a finite number')
    return (value) => typeof value === 'number' && holds(value, operand as number)
  }
}
