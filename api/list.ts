import type { Model, QueryFilter, Schema } from 'mongoose'
import { z } from 'zod'
import { countOf } from '../models/counters.ts'
import type { Permission } from '../models/identity/roles.ts'
import { maxTimeMS } from '../models/tenant-scope.ts'
import { makeListTurns } from './caps.ts'
import { after, cursorAt } from './cursors.ts'
import { tagKey } from './fields.ts'
import { wordsFor } from './words.ts'
import { type Caller, type Exemption, type Operation, operation } from './operation.ts'

type View = z.ZodObject<z.ZodRawShape>
type Filter = Record<string, unknown>

const inTurn = makeListTurns()

const controls = {
  limit: z.coerce
    .number()
    .int()
    .min(0)
    .default(20)
    .transform((limit) => Math.min(limit, 100))
    .describe('Items to return; values above 100 are capped at 100'),
  cursor: z
    .string()
    .max(2000)
    .optional()
    .describe(
      'The `next_cursor` of the previous page; this page begins after it, whatever was created or deleted since',
    ),
  offset: z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER).default(0).describe('Items to skip'),
  order: z.enum(['asc', 'desc']).default('desc'),
  q: z
    .string()
    .max(200)
    .refine((text) => !text.includes('\0'), 'must have no NUL') // no pattern of MongoDB has one
    .optional()
    .describe('Case-insensitive text to find in any field'),
}

/**
 * Declares a list with paging, sorting, `q` and a typed exact filter for each stored field of the view. `scope` always limits
 * the list: to the caller's tenant, and to the parent's id.
 */
export function list<
  D extends { _id: string },
  V extends View,
  P extends z.ZodType | undefined = undefined,
>(of: {
  path: string
  permission: Permission | Exemption<'users'>
  summary: string
  params?: P
  model: Model<D>
  view: V
  toView?: (document: D) => z.output<V>
  /** Instead of `toView`, if views need further records. */
  toViews?: (documents: D[]) => Promise<z.output<V>[]>
  /** The document's names of fields that the view names differently. */
  stored?: Partial<Record<keyof z.output<V> & string, string>>
  sortBy?: keyof z.output<V> & string
  scope: (caller: Caller, params: P extends z.ZodType ? z.output<P> : undefined) => Promise<Filter> | Filter
  /** Leaves out what other resources manage, unless the request filters by `managed_by`. */
  hidesManaged?: boolean
  /** Large fields that the view does not show: they are not read. */
  without?: string[]
  /** Query options: operators' lists pass `everyTenant`. */
  options?: Record<string, unknown>
}): Operation {
  const fields = Object.keys(of.view.shape)
  const pathOf = (field: string): string => of.stored?.[field] ?? (field === 'id' ? '_id' : field)
  const typeAt = (path: string): string | undefined => of.model.schema.path(path)?.instance
  const typeOf = (field: string): string | undefined => typeAt(pathOf(field))
  // No document has what the view computes.
  const filterable = fields.filter((field) => isStored(of.model, pathOf(field)))
  const sortable = fields.filter((field) =>
    ['String', 'Number', 'Date', 'Boolean'].includes(typeOf(field) ?? ''),
  )

  const shape = {
    ...Object.fromEntries(
      filterable.map((field) => {
        const filter = exactly(of.view.shape[field] as z.ZodType).optional()
        return [field, field === 'tags' ? filter.describe(tagWords) : filter]
      }),
    ),
    ...controls,
    sort_by: z
      .enum(sortable as [string, ...string[]])
      .default(of.sortBy ?? 'created_at')
      .describe('The field to sort by'),
  }
  const query = filterable.includes('tags') ? withTags(shape) : z.strictObject(shape)

  const filterOf = (asked: Filter): Filter[] =>
    Object.entries(asked)
      .filter(([field, value]) => !(field in controls) && field !== 'sort_by' && value !== undefined)
      .map(([field, value]) =>
        field.startsWith(tagPrefix)
          ? hasTag(field.slice(tagPrefix.length), value as string)
          : {
              [pathOf(field)]: {
                $eq: typeOf(field) === 'Date' && value !== null ? new Date(value as string) : value,
              },
            },
      )

  return operation({
    method: 'GET',
    path: of.path,
    permission: of.permission,
    summary: of.summary,
    params: of.params,
    query,
    responses: {
      200: z.strictObject({
        items: z.array(of.view),
        total: z.int().describe('The number of all matching items, on all pages'),
        next_cursor: z.string().optional().describe('The `cursor` of the next page; absent on the last page'),
      }),
    },
    handle: ({ caller, params, query: asked, http: { response } }) =>
      inTurn(caller.tenant_id, response, async () => {
        const { limit, offset, order, sort_by, q, cursor } = asked
        const scope = await of.scope(caller, params)
        const conditions = [...filterOf(asked), ...(q ? [contains(q, fields.map(pathOf), typeAt)] : [])]
        const own =
          of.hidesManaged && !('managed_by' in asked && asked.managed_by !== undefined)
            ? { managed_by: null }
            : {}
        const filter = {
          ...scope,
          ...own,
          ...(conditions.length ? { $and: conditions } : {}),
        } as QueryFilter<D>
        const direction = order === 'asc' ? 1 : -1
        const options = { ...of.options, maxTimeMS }
        const path = pathOf(sort_by)
        const next = cursor && after(cursor, { sort_by, order }, path, typeAt(path) === 'Date')
        const page = next ? { ...filter, $and: [...conditions, next] } : filter
        const [found, total] = await Promise.all([
          limit === 0
            ? []
            : of.model
                .find(page, Object.fromEntries((of.without ?? []).map((field) => [field, 0])))
                .setOptions(options)
                .sort({ [path]: direction, _id: direction })
                .skip(offset)
                .limit(limit + 1) // one more tells whether there is a next page
                .lean<D[]>(),
          totalOf(of.model, filter, options),
        ])
        const documents = found.slice(0, limit)
        const last = found.length > limit ? documents.at(-1) : undefined
        const items = of.toViews ? await of.toViews(documents) : documents.map(of.toView ?? noView)
        return { items, total, ...(last ? { next_cursor: cursorAt({ sort_by, order }, path, last) } : {}) }
      }),
  })
}

const tagPrefix = 'tags.'
const tagWords = 'All tags, as JSON. To filter by single tags: `tags.env=prod&tags.team=blue`'

/** Takes `tags.<key>=<value>` too, each as a filter of its own. */
const withTags = <S extends z.ZodRawShape>(shape: S) =>
  z
    .object(shape)
    .catchall(z.string())
    .superRefine((asked, context) => {
      const unknown = Object.keys(asked).filter(
        (key) => !(key in shape) && !(key.startsWith(tagPrefix) && tagKey.test(key.slice(tagPrefix.length))),
      )
      if (unknown.length) context.addIssue({ code: 'unrecognized_keys', keys: unknown, input: asked })
    })

/** A key may have dots, which are no path. */
const hasTag = (key: string, value: string): Filter => ({
  $expr: {
    $eq: [
      { $getField: { field: { $literal: key }, input: { $ifNull: ['$tags', {}] } } },
      { $literal: value },
    ],
  },
})

const isStored = (model: { schema: Pick<Schema, 'pathType'> }, path: string): boolean =>
  ['real', 'nested'].includes(model.schema.pathType(path))

function noView(): never {
  throw new Error('a list needs toView or toViews')
}

/** The number of matches. Reads the counter for a tenant's whole list; counts any other list. */
async function totalOf<D>(
  model: Model<D>,
  filter: QueryFilter<D>,
  options: Record<string, unknown>,
): Promise<number> {
  const { tenant_id, managed_by, ...more } = filter as Filter
  const known = typeof tenant_id === 'string' && !managed_by && Object.keys(more).length === 0
  const count = known ? await countOf(model, tenant_id) : null
  if (count === null) return model.countDocuments(filter).setOptions(options)
  if (managed_by === undefined) return count
  const managed = { tenant_id, managed_by: { $gt: '' } } as QueryFilter<D> // an index has them, and they are few
  return count - (await model.countDocuments(managed))
}

/** Parses a filter's text as the field's type: as text, or as JSON if the field is not text. */
function exactly(field: z.ZodType): z.ZodType {
  const parsing = z.string().transform((text, context) => {
    const asText = field.safeParse(text, { error: wordsFor })
    if (asText.success) return asText.data
    const asJson = field.safeParse(parseJson(text))
    if (asJson.success) return asJson.data
    context.issues.push({
      code: 'custom',
      input: text,
      message: asText.error.issues[0]?.message ?? 'is not a value of this field',
    })
    return z.NEVER
  })
  return parsing.meta(filterSchema(field))
}

/** How the document describes a filter: as its field, if that is one value; else as the field’s JSON. */
function filterSchema(field: z.ZodType): Record<string, unknown> {
  const {
    $schema: _,
    $defs: __,
    id: ___,
    pattern: ____,
    ...json
  } = z.toJSONSchema(field, {
    io: 'output',
    unrepresentable: 'any',
  }) as Record<string, unknown>
  const { anyOf, ...rest } = json
  const [only, nothing] = (anyOf ?? []) as Record<string, unknown>[]
  const nullable = nothing?.['type'] === 'null' && typeof only?.['type'] === 'string'
  const { pattern: _____, ...schema } = nullable ? { ...only, ...rest, type: [only['type'], 'null'] } : json
  const types = [schema['type']].flat()
  const isOne = types.every((type) => typeof type === 'string' && !['object', 'array'].includes(type))
  if (isOne || !('type' in schema || 'anyOf' in schema)) return schema
  return { type: 'string', description: [json['description'], 'As JSON'].filter(Boolean).join('. ') }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Matches documents with `q` in a text field or tag. `q` is escaped: it is never a pattern. */
function contains(q: string, paths: string[], typeAt: (path: string) => string | undefined): Filter {
  const pattern = q.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)
  const texts = paths.filter((path) => ['String', 'Array'].includes(typeAt(path) ?? ''))
  const inTags = {
    $expr: {
      $anyElementTrue: {
        $map: {
          input: { $objectToArray: { $ifNull: ['$tags', {}] } },
          in: {
            $regexMatch: { input: { $concat: ['$$this.k', '=', '$$this.v'] }, regex: pattern, options: 'i' },
          },
        },
      },
    },
  }
  return {
    $or: [
      ...texts.map((path) => ({ [path]: { $regex: pattern, $options: 'i' } })),
      ...(paths.includes('tags') ? [inTags] : []),
    ],
  }
}
