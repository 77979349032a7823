import type { z } from 'zod'
import { Problem } from '../lib/problem.ts'
import type { By } from '../models/acceptance.ts'
import { NoCapacity } from '../models/compute/reservations.ts'
import type { Accepted } from '../models/operations.ts'
import type { Resource, ResourceDocument } from '../models/resources.ts'
import type { AcceptedAnswer, Caller } from './operation.ts'

/** A resource with its view in the API. */
export interface Shown<D extends ResourceDocument, V extends z.ZodType, Verb extends string = string> {
  resource: Resource<D, Verb>
  view: V
  /** A method, not a property: bivariant parameters let a resource of one type pass for any. */
  toView(this: void, document: D): z.output<V>
}

/** A request as models/ sees it. A deploy server's own credentials reach nothing of another one. */
export const byOf = ({ kind, tenant_id, id }: Caller): By => ({
  tenant_id,
  id,
  over_http: true,
  ...(kind === 'deploy_server' ? { within: id } : {}),
})

/** Accepts an operation by the rules of models/, and answers with its id and the resource. */
export async function accepting<D extends ResourceDocument, T>(
  caller: Caller,
  toView: (document: D) => T,
  accept: (by: By) => Promise<Accepted<D>>,
): Promise<AcceptedAnswer<T>> {
  try {
    const { document, operation } = await accept(byOf(caller))
    return { operation_id: operation._id, body: toView(document) }
  } catch (error) {
    if (error instanceof NoCapacity) throw new Problem(409, error.code, 'No capacity', error.message)
    throw error
  }
}

/** The same for a creation that is idempotent: answers with the resource alone if it exists already. */
export async function acceptingOrThere<D extends ResourceDocument, T>(
  caller: Caller,
  toView: (document: D) => T,
  accept: (by: By) => Promise<Accepted<D> | { document: D; operation: null }>,
): Promise<AcceptedAnswer<T> | T> {
  const { document, operation } = await accept(byOf(caller))
  return operation ? { operation_id: operation._id, body: toView(document) } : toView(document)
}
