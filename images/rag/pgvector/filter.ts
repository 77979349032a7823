import { compileFilter } from '../filter.ts'
import type { Condition, FieldValue, Filter, Metadata, MetadataSchema } from '../store.ts'

// Filters as conditions in SQL on `fields`. Its values are JSON; texts are JSON in JSON, since PostgreSQL's have no zeros.

/** The documents that a filter leaves. */
export interface Allowed {
  documents: number[]
  chunks: number
}

const encoded = (value: FieldValue): string =>
  JSON.stringify(typeof value === 'string' ? JSON.stringify(value) : value)

/** The column `fields` of a document. */
export const fieldsOf = (metadata: Metadata): string =>
  `{${Object.entries(metadata)
    .map(([field, value]) => `${JSON.stringify(field)}:${encoded(value)}`)
    .join()}}`

const comparisons = { eq: '=', gt: '>', gte: '>=', lt: '<', lte: '<=' } as const

/** The condition, and the values of its parameters from $1 on. Throws `invalid_filter` as all engines do. */
export function filterSql(filter: Filter, schema: MetadataSchema): { sql: string; values: unknown[] } {
  compileFilter(filter, schema)
  const values: unknown[] = []
  const parameter = (value: unknown): string => `$${values.push(value)}`
  const conditions = Object.entries(filter).flatMap(([field, wanted]) => {
    const condition: Condition = typeof wanted === 'object' ? wanted : { eq: wanted }
    const its = `fields -> ${parameter(field)}::text`
    return Object.entries(condition)
      .filter(([, operand]) => operand !== undefined)
      .map(([operator, operand]) => {
        if (operator === 'exists') return `(${its}) IS ${operand ? 'NOT ' : ''}NULL`
        if (operator === 'in')
          return `${its} = ANY (${parameter((operand as FieldValue[]).map(encoded))}::jsonb[])`
        return `${its} ${comparisons[operator as keyof typeof comparisons]} ${parameter(encoded(operand as FieldValue))}::jsonb`
      })
  })
  return { sql: conditions.join(' AND ') || 'true', values }
}
