import type { Model, QueryFilter, Schema } from 'mongoose'
import { z } from 'zod'
import { countOf } from '../models/counters.ts'
import type { Permission } from '../models/identity/roles.ts'
import { maxTimeMS } from '../models/tenant-scope.ts'
import { makeListTurns } from './caps.ts'
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
  offset: z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER).default(0).describe('Items to skip'),
  order: z.enum(['asc', 'desc']).default('desc'),
  q: z
    .string()
    .max(200)
    .refine((text) => !text.includes('\0'), 'no NUL') // no pattern of MongoDB has one
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

  const query = z.strictObject({
    ...Object.fromEntries(
      filterable.map((field) => [field, exactly(of.view.shape[field] as z.ZodType).optional()]),
    ),
    ...controls,
    sort_by: z.enum(sortable as [string, ...string[]]).default(of.sortBy ?? 'created_at'),
  })

  const filterOf = (asked: Filter): Filter[] =>
    Object.entries(asked)
      .filter(([field, value]) => filterable.includes(field) && !(field in controls) && value !== undefined)
      .map(([field, value]) => ({
        [pathOf(field)]: {
          $eq: typeOf(field) === 'Date' && value !== null ? new Date(value as string) : value,
        },
      }))

  return operation({
    method: 'GET',
    path: of.path,
    permission: of.permission,
    summary: of.summary,
    params: of.params,
    query,
    responses: { 200: z.strictObject({ items: z.array(of.view), total: z.int() }) },
    handle: ({ caller, params, query: asked, http: { response } }) =>
      inTurn(caller.tenant_id, response, async () => {
        const { limit, offset, order, sort_by, q } = asked
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
        const [documents, total] = await Promise.all([
          limit === 0
            ? []
            : of.model
                .find(filter)
                .setOptions(options)
                .sort({ [pathOf(sort_by)]: direction, _id: direction })
                .skip(offset)
                .limit(limit)
                .lean<D[]>(),
          totalOf(of.model, filter, options),
        ])
        const items = of.toViews ? await of.toViews(documents) : documents.map(of.toView ?? noView)
        return { items, total }
      }),
  })
}

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
  return z.string().transform((text, context) => {
    const asText = field.safeParse(text)
    if (asText.success) return asText.data
    const asJson = field.safeParse(parseJson(text))
    if (asJson.success) return asJson.data
    context.issues.push({
      code: 'custom',
      input: text,
      message: asText.error.issues[0]?.message ?? 'is no value of this field',
    })
    return z.NEVER
  })
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
