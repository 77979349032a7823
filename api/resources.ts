import type { z } from 'zod'
import { acceptanceOf } from '../models/acceptance.ts'
import type { Permission } from '../models/identity/roles.ts'
import { readMine, type ResourceDocument } from '../models/resources.ts'
import { accepting, type Shown } from './accept.ts'
import { byId } from './fields.ts'
import { list } from './list.ts'
import { type Operation, operation } from './operation.ts'

/** A tenant's resource with its view and paths in the API. */
export interface ShownResource<
  D extends ResourceDocument = ResourceDocument,
  V extends z.ZodObject = z.ZodObject,
> extends Shown<D, V> {
  /** The name in permissions, such as `containers`. */
  plural: Extract<Permission, `${string}:delete`> extends `${infer P}:delete` ? P : never
  /** The name in paths. Default: that in permissions, with dashes. */
  path?: string
  /** The document's names of fields that the view names differently. */
  stored?: Record<string, string>
  /** Large fields that lists do not read. The view shows none of them. */
  without?: string[]
  /** The summary of the delete operation, with its side effects and requirements. */
  deletion: string
}

/** The list, get and delete operations of a tenant's resource. */
export function resourceOperations(shown: ShownResource) {
  const { resource, plural, view, toView, stored = {}, without = [] } = shown
  const { model, title } = resource
  const path = `/api/v1/${shown.path ?? plural.replaceAll('_', '-')}`

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
      hidesManaged: true,
      without,
    }),

    get: operation({
      method: 'GET',
      path: `${path}/{id}`,
      permission: `${plural}:read`,
      summary: `Get a ${title}`,
      params: byId,
      responses: { 200: view },
      handle: async ({ caller, params }) => toView(await readMine(resource, caller, params.id)),
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
