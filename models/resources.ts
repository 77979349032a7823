import { type Model, Schema, type SchemaDefinition } from 'mongoose'
import { newId } from '../lib/ids.ts'
import { NameTaken, NotFound } from '../lib/problem.ts'
import { isDuplicateKey } from './database.ts'
import { schemaOptions } from './schemas.ts'
import type { States } from './states.ts'
import { countedByTenant } from './counters.ts'
import { tenantScoped } from './tenant-scope.ts'

/** What every resource has. `_id` is the `id` of the interface. */
export interface ResourceDocument<State extends string = string> {
  _id: string
  tenant_id: string
  name: string
  tags: Record<string, string>
  status: State
  status_reason: string | null
  /** The open operation, which alone may change the resource. */
  operation_id: string | null
  created_at: Date
  updated_at: Date
}

/**
 * One kind of resource. The operation engine knows no more of it than the common fields; who knows which kind it is has the
 * document's own type, and only the verbs of its table.
 */
export interface Resource<D extends ResourceDocument = ResourceDocument, Verb extends string = string> {
  /** As in permissions' singular, workflow names and messages: `container`. */
  kind: string
  /** In sentences: `VPC`. */
  title: string
  model: Model<ResourceDocument>
  states: States<D['status'], Verb>
  /**
   * The platform's own: no tenant's deletion touches it. Its `tenant_id` says only in which tenant the operations on it
   * are kept, that of the operator who began the last.
   */
  of_platform: boolean
  /** Run in the transaction that ends an operation on it, where what it comes to rest as also follows from other records. */
  comesToRest?: (resource: { _id: string; tenant_id: string }) => Promise<void>
  /** Throws a 409 while something needs this one; asked in the transaction that accepts its deletion. */
  mayDelete(this: void, document: D): Promise<void>
}

const kinds = new Map<string, Resource>()

/** Makes a kind known to the operation engine, which reads and writes the common fields only. */
export function defineResource<D extends ResourceDocument, Verb extends string>(
  kind: string,
  model: Model<D>,
  states: States<D['status'], Verb>,
  more: Partial<Pick<Resource, 'title' | 'of_platform' | 'comesToRest'>> = {},
): Resource<D, Verb> {
  const common = model as unknown as Model<ResourceDocument>
  const resource: Resource<D, Verb> = {
    kind,
    title: kind.replaceAll('_', ' '),
    model: common,
    states,
    of_platform: false,
    mayDelete: async () => {},
    ...more,
  }
  kinds.set(kind, resource)
  return resource
}

/** The tenant's own resource with this id. Throws NotFound, also where another tenant has it. */
export async function mine<D extends ResourceDocument>(
  { model, title }: Resource<D>,
  { tenant_id }: { tenant_id: string },
  _id: string,
): Promise<D> {
  const document = await model.findOne({ _id, tenant_id }).lean()
  if (!document) throw new NotFound(title)
  return document as ResourceDocument as D
}

/** A resource is not deleted while `check` throws: said by what is kept in it, which knows it, and not the other way. */
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

/** Writes a name that has to be unique. Throws NameTaken. */
export async function named<T>(what: string, name: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (isDuplicateKey(error) && 'name' in error.keyPattern) throw new NameTaken(what, name)
    throw error
  }
}

/** The fields of a resource of the platform's own, but its `_id`, name and other fields. */
export const platformFields = (states: States) => ({
  tenant_id: { type: String, default: '' },
  tags: { type: Schema.Types.Mixed, default: {} },
  status: { type: String, required: true, enum: states.all },
  status_reason: { type: String, default: null },
  operation_id: { type: String, default: null },
})

/** Throws when no such kind was defined. */
export function resourceOf(kind: string): Resource {
  const resource = kinds.get(kind)
  if (!resource) throw new Error(`no such kind of resource: ${kind}`)
  return resource
}

/** Every kind that there is. */
export const allResources = (): Resource[] => [...kinds.values()]

/** The fields of every document of ours: a UUIDv7 and the two timestamps, nothing of mongoose's own. */
export const documentOptions = {
  ...schemaOptions,
  timestamps: { createdAt: 'created_at', updatedAt: 'updated_at' },
} as const
export const idField = { type: String, default: newId } as const

/** A schema with the common fields, the tenant scope and the indexes that every list needs. */
export function resourceSchema<D extends ResourceDocument>(
  fields: Record<Exclude<keyof D, keyof ResourceDocument>, unknown>,
  states: States<D['status']>,
  collection: string,
): Schema<D> {
  const common = {
    _id: idField,
    tenant_id: { type: String, required: true },
    name: { type: String, required: true },
    tags: { type: Schema.Types.Mixed, default: {} },
    status: { type: String, required: true, enum: states.all },
    status_reason: { type: String, default: null },
    operation_id: { type: String, default: null },
  }
  const schema = new Schema<D>({ ...common, ...fields } as SchemaDefinition, documentOptions)
  tenantScoped(schema)
  countedByTenant(schema, collection)
  schema.index({ tenant_id: 1, name: 1 }, { unique: true }) // names are unique among the living
  schema.index({ tenant_id: 1, created_at: -1, _id: -1 }) // the default order of lists
  return schema
}
