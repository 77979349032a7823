import { z } from 'zod'
import { InvalidInput } from '../lib/problem.ts'

// The place of a document in a sorted list, by which a client walks it: what comes and goes meanwhile moves no other. An
// offset counts from the start, so that a new document shows the last of a page again.

type Filter = Record<string, unknown>
type Order = 'asc' | 'desc'

interface Sorting {
  sort_by: string
  order: Order
}
const Cursor = z.tuple([
  z.string(),
  z.enum(['asc', 'desc']),
  z.union([z.string(), z.number(), z.boolean(), z.null()]),
  z.string(),
])

/** Of the last document of a page. */
export function cursorAt({ sort_by, order }: Sorting, path: string, document: { _id: string }): string {
  const value = path.split('.').reduce<unknown>((at, field) => (at as Filter | null)?.[field], document)
  return Buffer.from(JSON.stringify([sort_by, order, value ?? null, document._id])).toString('base64url')
}

/** Selects what comes after a cursor. Throws InvalidInput if it is none of this list as it is sorted now. */
export function after(cursor: string, sorting: Sorting, path: string, isDate: boolean): Filter {
  const [sort_by, order, text, id] = read(cursor)
  if (sort_by !== sorting.sort_by || order !== sorting.order)
    throw wrong(`belongs to a list sorted by ${sort_by}, ${order}: sort in the same way`)
  const value = isDate && typeof text === 'string' ? new Date(text) : text
  if (value instanceof Date && Number.isNaN(value.getTime())) throw wrong('is not a next_cursor of this list')
  const beyond = order === 'asc' ? '$gt' : '$lt'
  const same = { [path]: { $eq: value }, _id: { [beyond]: id } }
  // Null sorts before all values, and is compared with none.
  if (value === null) return order === 'asc' ? { $or: [same, { [path]: { $ne: null } }] } : same
  const further = { [path]: { [beyond]: value } }
  return { $or: [same, further, ...(order === 'desc' ? [{ [path]: { $eq: null } }] : [])] }
}

function read(cursor: string): z.output<typeof Cursor> {
  try {
    return Cursor.parse(JSON.parse(Buffer.from(cursor, 'base64url').toString()))
  } catch {
    throw wrong('is not a next_cursor of this list')
  }
}

const wrong = (message: string): InvalidInput => new InvalidInput(400, [{ pointer: '/cursor', message }])
