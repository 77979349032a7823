import type { z } from 'zod'
import { NoCapacity } from '../models/compute/reservations.ts'
import { transaction } from '../models/database.ts'
import { type Accepted, acceptCreate, acceptVerb } from '../models/operations.ts'
import type { Resource, ResourceDocument } from '../models/resources.ts'
import { Problem } from '../lib/problem.ts'
import type { AcceptedAnswer, Caller } from './operation.ts'

/** A resource as the API shows it. */
export interface Shown<D extends ResourceDocument, V extends z.ZodType> {
  resource: Resource
  view: V
  toView: (document: D) => z.output<V>
}

/** Accepts the creation of a resource; `reserve` takes quota in the same transaction, and may return what it wrote besides. */
export async function create<D extends ResourceDocument, V extends z.ZodType>(
  caller: Caller,
  { resource, toView }: Shown<D, V>,
  fields: Omit<D, Exclude<keyof ResourceDocument, 'name' | 'tags'>>,
  more: {
    /** Where it is not `create`. */
    verb?: string
    input?: Record<string, unknown>
    /** What it returns is shown at once. */
    reserve?: (document: D) => Promise<Partial<D> | void>
  } = {},
): Promise<AcceptedAnswer<z.output<V>>> {
  return accepting(caller, toView, async () => {
    const verb = more.verb === undefined ? {} : { verb: more.verb }
    const accepted = await acceptCreate({ ...by(caller, resource), fields, ...verb, ...input(more.input) })
    Object.assign(accepted.document, await more.reserve?.(accepted.document as D))
    return accepted
  })
}

/** Accepts a verb on a resource; `set` shows at once, and is put back should the operation fail. */
export async function begin<D extends ResourceDocument, V extends z.ZodType>(
  caller: Caller,
  { resource, toView }: Shown<D, V>,
  id: string,
  verb: string,
  more: { input?: Record<string, unknown>; set?: Partial<D>; reserve?: (document: D) => Promise<void> } = {},
): Promise<AcceptedAnswer<z.output<V>>> {
  return accepting(caller, toView, async () => {
    const request = { ...by(caller, resource), id, verb, ...input(more.input) }
    const accepted = await acceptVerb(more.set ? { ...request, set: more.set } : request)
    await more.reserve?.(accepted.document as D)
    return accepted
  })
}

/** Accepts in one transaction, and answers with what was accepted. */
export async function accepting<D extends ResourceDocument, T>(
  { tenant_id }: Caller,
  toView: (document: D) => T,
  accept: () => Promise<Accepted>,
): Promise<AcceptedAnswer<T>> {
  try {
    const { document, operation } = await transaction(accept, tenant_id)
    return { operation_id: operation._id, body: toView(document as D) }
  } catch (error) {
    if (error instanceof NoCapacity) throw new Problem(409, error.code, 'No capacity', error.message)
    throw error
  }
}

const by = (caller: Caller, resource: Resource) => ({
  resource,
  tenantId: caller.tenant_id,
  requestedBy: caller.id,
})
const input = (value: Record<string, unknown> | undefined) => (value ? { input: value } : {})
