import type { z } from 'zod'
import { acceptanceOf } from '../models/acceptance.ts'
import type { Permission } from '../models/identity/roles.ts'
import { mine, type ResourceDocument } from '../models/resources.ts'
import { accepting, type Shown } from './accept.ts'
import { byId } from './fields.ts'
import { list } from './list.ts'
import { type Operation, operation } from './operation.ts'

/** How a resource of tenants is shown by the API. */
export interface ShownResource<
  D extends ResourceDocument = ResourceDocument,
  V extends z.ZodObject = z.ZodObject,
> extends Shown<D, V> {
  /** In paths and permissions: `containers`. */
  plural: Extract<Permission, `${string}:delete`> extends `${infer P}:delete` ? P : never
  /** Where a field of the view stands in the document, if under another name. */
  stored?: Record<string, string>
  /** The summary of its deletion, which says what else that does or needs. */
  deletion: string
}

/** To list, get and delete a resource of tenants, whatever it is. */
export function resourceOperations(shown: ShownResource) {
  const { resource, plural, view, toView, stored = {} } = shown
  const { model, title } = resource
  const path = `/api/v1/${plural}`

  return {
    list: list({
      path,
      permission: `${plural}:read`,
      summary: `List ${title}s`,
      model,
      view,
      toView,
      stored,
      scope: ({ tenant_id }) => ({ tenant_id }),
    }),

    get: operation({
      method: 'GET',
      path: `${path}/{id}`,
      permission: `${plural}:read`,
      summary: `Get a ${title}`,
      params: byId,
      responses: { 200: view },
      handle: async ({ caller, params }) => toView(await mine(resource, caller, params.id)),
    }),

    delete: operation({
      method: 'DELETE',
      path: `${path}/{id}`,
      permission: `${plural}:delete`,
      summary: shown.deletion,
      params: byId,
      responses: { 202: view },
      handle: ({ caller, params: { id } }) =>
        accepting(caller, toView, (by) => acceptanceOf(resource.kind, 'delete')(by, { id })),
    }),
  } satisfies Record<string, Operation>
}
