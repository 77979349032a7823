import { type Model, Schema, type SchemaDefinition } from 'mongoose'
import { newId } from '../lib/ids.ts'
import { NameTaken, NotFound } from '../lib/problem.ts'
import { isDuplicateKey } from './database.ts'
import { readOne } from './read-one.ts'
import { schemaOptions } from './schemas.ts'
import type { States } from './states.ts'
import { countedByTenant } from './counters.ts'
import { tenantScoped } from './tenant-scope.ts'

/** The fields of every resource. The API shows `_id` as `id`. */
export interface ResourceDocument<State extends string = string> {
  _id: string
  tenant_id: string
  name: string
  tags: Record<string, string>
  status: State
  status_reason: string | null
  /** The open operation. No other operation may change the resource. */
  operation_id: string | null
  /** The resource that made it and changes it: a deploy server or a store. Null: it is the tenant's own. */
  managed_by: string | null
  created_at: Date
  updated_at: Date
}

/**
 * One kind of resource. The operation engine uses the common fields only; code that knows the kind has its document
 * type and the verbs of its state table.
 */
export interface Resource<D extends ResourceDocument = ResourceDocument, Verb extends string = string> {
  /** The name in workflow names and messages, in the singular: `container`. */
  kind: string
  /** The name in sentences: `VPC`. */
  title: string
  model: Model<ResourceDocument>
  states: States<D['status'], Verb>
  /**
   * Belongs to the platform: the deletion of a tenant does not touch it. Its `tenant_id` is only the tenant that keeps
   * the operations on it: that of the operator who started the last one.
   */
  of_platform: boolean
  /** What its operations tell its activity feed, if it has one. */
  feed: readonly FeedEvent[]
  /** Runs in the transaction that ends an operation on the resource, if other records must be settled with it. */
  comesToRest?: (resource: {
    _id: string
    tenant_id: string
    ended: 'succeeded' | 'failed' | 'cancelled'
  }) => Promise<void>
  /** Throws a 409 if an operation on it has nothing left that a cancel could take back. */
  mayCancel?: (resource: { _id: string; tenant_id: string }) => Promise<void>
  /** Throws a 409 while another record needs this one. Runs in the transaction that accepts the deletion. */
  mayDelete(this: void, document: D): Promise<void>
}

/** It was created; an operation on it failed. */
export type FeedEvent = 'created' | 'failed'
export const wholeFeed: readonly FeedEvent[] = ['created', 'failed']

const kinds = new Map<string, Resource>()

/** Registers a kind with the operation engine, which reads and writes the common fields only. */
export function defineResource<D extends ResourceDocument, Verb extends string>(
  kind: string,
  model: Model<D>,
  states: States<D['status'], Verb>,
  more: Partial<Pick<Resource, 'title' | 'of_platform' | 'feed' | 'comesToRest'>> = {},
): Resource<D, Verb> {
  const common = model as unknown as Model<ResourceDocument>
  const resource: Resource<D, Verb> = {
    kind,
    title: kind.replaceAll('_', ' '),
    model: common,
    states,
    of_platform: false,
    feed: [],
    mayDelete: async () => {},
    ...more,
  }
  kinds.set(kind, resource)
  return resource
}

/** The tenant's resource with this id. Throws NotFound, also if the resource belongs to another tenant. */
export async function mine<D extends ResourceDocument>(
  { model, title }: Resource<D>,
  { tenant_id }: { tenant_id: string },
  _id: string,
): Promise<D> {
  const document = await model.findOne({ _id, tenant_id }).lean<D>()
  if (!document) throw new NotFound(title)
  return document
}

/** As `mine`, but joined with other reads of its turn, and never part of a transaction: for what only shows it. */
export async function readMine<D extends ResourceDocument>(
  { model, title }: Resource<D>,
  { tenant_id }: { tenant_id: string },
  _id: string,
): Promise<D> {
  const document = await readOne(model, '_id', _id, { tenant_id })
  if (!document) throw new NotFound(title)
  return document as D
}

/**
 * Refuses the deletion of a resource while `check` throws. The dependent model calls this; the resource does not know
 * it.
 */
export function keptBy<D extends ResourceDocument>(
  resource: Resource<D>,
  check: (document: D) => Promise<void>,
): void {
  const before = resource.mayDelete
  resource.mayDelete = async (document) => {
    await before(document)
    await check(document)
  }
}

/** Runs a write that sets a unique name. Throws NameTaken. */
export async function named<T>(what: string, name: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (isDuplicateKey(error) && 'name' in error.keyPattern) throw new NameTaken(what, name)
    throw error
  }
}

/** The common schema fields of the platform's own resources, except `_id` and `name`. */
export const platformFields = (states: States) => ({
  tenant_id: { type: String, default: '' },
  tags: { type: Schema.Types.Mixed, default: {} },
  status: { type: String, required: true, enum: states.all },
  status_reason: { type: String, default: null },
  operation_id: { type: String, default: null },
  managed_by: { type: String, default: null },
})

/** Throws if the kind was not defined. */
export function resourceOf(kind: string): Resource {
  const resource = kinds.get(kind)
  if (!resource) throw new Error(`no such kind of resource: ${kind}`)
  return resource
}

/** Every kind that was defined. */
export const allResources = (): Resource[] => [...kinds.values()]

/** For the schema of every document: a UUIDv7 as the id, the two timestamps, no fields of mongoose's own. */
export const documentOptions = {
  ...schemaOptions,
  timestamps: { createdAt: 'created_at', updatedAt: 'updated_at' },
} as const
export const idField = { type: String, default: newId } as const

/**
 * A schema with the common fields, the tenant scope and the indexes that every list needs. `within`: the field with the
 * parent in which names are unique. Default: among the tenant's own resources, and among those of one manager.
 */
export function resourceSchema<D extends ResourceDocument>(
  fields: Record<Exclude<keyof D, keyof ResourceDocument>, unknown>,
  states: States<D['status']>,
  collection: string,
  { within = 'managed_by' }: { within?: keyof D & string } = {},
): Schema<D> {
  const common = {
    _id: idField,
    tenant_id: { type: String, required: true },
    name: { type: String, required: true },
    tags: { type: Schema.Types.Mixed, default: {} },
    status: { type: String, required: true, enum: states.all },
    status_reason: { type: String, default: null },
    operation_id: { type: String, default: null },
    managed_by: { type: String, default: null },
  }
  const schema = new Schema<D>({ ...common, ...fields } as SchemaDefinition, documentOptions)
  tenantScoped(schema)
  countedByTenant(schema, collection)
  schema.index({ tenant_id: 1, [within]: 1, name: 1 }, { unique: true }) // a deletion frees the name
  schema.index({ tenant_id: 1, created_at: -1, _id: -1 }) // the default order of lists
  schema.index({ tenant_id: 1, status: 1 }, { name: 'failed', partialFilterExpression: { status: 'error' } })
  return schema
}
