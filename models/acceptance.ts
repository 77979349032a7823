import { transaction } from './database.ts'
import { needFewFailed } from './failed-resources.ts'
import { auditOperation } from './identity/operation-audit.ts'
import { type Accepted, acceptCreate, acceptVerb } from './operations.ts'
import { type Resource, type ResourceDocument, resourceOf } from './resources.ts'
import { needRoomForWork } from './store-room.ts'

// Handlers and activities accept every operation through this file. A resource's rules are functions that call
// `create` or `begin`. `accepts` registers them, so that an operation can start another one by kind and verb.

/** The caller. */
export interface By {
  tenant_id: string
  /** A user or an API client; null for the platform itself. */
  id: string | null
  /** The deploy server whose own credentials the caller has (api/confined.ts). What others have is unknown to it. */
  within?: string
  /** Set for an HTTP request, which api/audit.ts audits. Without it, the acceptance writes an audit event. */
  over_http?: true
  /** The parent operation, and this child's key in it. A retry finds the child by this key. */
  parent?: { id: string; key: string }
}

/** Whether what belongs to a deploy server of the caller's tenant is known to the caller. */
export const mayReach = ({ within }: By, deployServerId: string): boolean =>
  within === undefined || within === deployServerId

/** The request. `id` names the resource; it is absent when the operation creates one. */
export interface Asked {
  id?: string
  /** The fields of a new resource, or the verb's input. Must be complete: the API fills in the defaults. */
  input?: object
}

export type Accept = (by: By, asked: Asked) => Promise<Accepted>

type AcceptOn = (by: By, id: string, input: never) => Promise<Accepted>

/** The rules of one resource. A verb not listed here is checked only against the resource's state table. */
interface Rules<Verb extends string = string> {
  create?: (by: By, fields: never) => Promise<Accepted>
  verbs?: Partial<Record<Verb, AcceptOn>>
  /** Verbs that make a new resource from the one with the id, such as `fork`. */
  copies?: Record<string, AcceptOn>
}

const rules = new Map<string, Rules>()

/** Registers the rules by which operations on a resource are accepted. */
export function accepts<D extends ResourceDocument, Verb extends string>(
  resource: Resource<D, Verb>,
  its: Rules<Verb>,
): void {
  rules.set(resource.kind, its)
}

/** How an operation of this kind and verb is accepted. Throws when the kind is unknown, or has no rule to create it. */
export function acceptanceOf(kind: string, verb: string): Accept {
  const resource = resourceOf(kind)
  const { create: toCreate, verbs = {}, copies = {} } = rules.get(kind) ?? {}
  return async (by, { id, input = {} }) => {
    if (id !== undefined) {
      const accept = verbs[verb] ?? copies[verb]
      return accept ? accept(by, id, input as never) : begin(by, resource, id, verb, { input })
    }
    if (verb !== 'create' || !toCreate) throw new Error(`no rule accepts a ${verb} of a new ${kind}`)
    return toCreate(by, input as never)
  }
}

/** Accepts a new resource. Throws NameTaken, StoreFull and `too_many_failed` for a request, and what `reserve` throws. */
export const create = <D extends ResourceDocument, Verb extends string>(
  by: By,
  resource: Resource<D, Verb>,
  of: {
    fields: Omit<D, Exclude<keyof ResourceDocument, 'name' | 'tags'>>
    /** Of the new resource. Default: a new one. */
    id?: string
    /** Default: `create`. */
    verb?: string
    /** The resource of which it is a part. Default: none. */
    managed_by?: string | null
    /** What the workflow needs. Never a secret. */
    input?: object
    /** Takes quota and the like in the same transaction. Returns the fields it wrote, for the response. */
    reserve?: (document: D) => Promise<Partial<D> | void>
  },
): Promise<Accepted<D>> =>
  accepting(by, async () => {
    // The platform's own, such as scheduled backups, go on.
    if (by.over_http) {
      needRoomForWork()
      await needFewFailed(resource, by.tenant_id)
    }
    const verb = of.verb === undefined ? {} : { verb: of.verb }
    const accepted = await acceptCreate({
      ...requestOf(by, resource, of.input),
      fields: { ...of.fields, managed_by: of.managed_by ?? null },
      ...(of.id === undefined ? {} : { id: of.id }),
      ...verb,
    })
    Object.assign(accepted.document, await of.reserve?.(accepted.document))
    return accepted
  })

/** Verbs that go on while MongoDB's disk is full. */
const frees = new Set<string>(['delete', 'stop', 'disable', 'undeploy'])

/** What a verb changes beside the resource's status. */
export interface More<D extends ResourceDocument> {
  /** What the workflow needs. Never a secret. */
  input?: object
  /** Fields to change at once. They are restored if the operation fails. */
  set?: Partial<D>
  /** Takes quota and the like in the same transaction. Receives the document with `set` applied. */
  reserve?: (document: D) => Promise<void>
}

/**
 * Accepts a verb on a resource. Throws NotFound, StateConflict, OperationInProgress, StoreFull and ManagedResource for a request, and
 * what `reserve` throws.
 */
export const begin = <D extends ResourceDocument, Verb extends string>(
  by: By,
  resource: Resource<D, Verb>,
  id: string,
  verb: NoInfer<Verb>,
  of: More<D> = {},
): Promise<Accepted<D>> =>
  accepting(by, async () => {
    if (by.over_http && !frees.has(verb)) needRoomForWork()
    const request = { ...requestOf(by, resource, of.input), id, verb, for_tenant: by.over_http === true }
    const accepted = await acceptVerb(of.set ? { ...request, set: of.set } : request)
    await of.reserve?.(accepted.document)
    return accepted
  })

const accepting = async <D extends ResourceDocument>(
  by: By,
  accept: () => Promise<Accepted<D>>,
): Promise<Accepted<D>> =>
  transaction(async () => {
    const accepted = await accept()
    if (!by.over_http) await auditOperation(by, accepted.operation)
    return accepted
  }, by.tenant_id)

const requestOf = <D extends ResourceDocument, Verb extends string>(
  { tenant_id, id, parent }: By,
  resource: Resource<D, Verb>,
  input: object = {},
) => ({
  resource,
  tenantId: tenant_id,
  requestedBy: id,
  input: { ...input },
  ...(parent ? { parent } : {}),
})
