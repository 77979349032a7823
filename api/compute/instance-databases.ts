import { z } from 'zod'
import type { AttachableKind } from '../../models/compute/instances.ts'
import { acceptAttachDatabase, acceptDetachDatabase } from '../../models/deploy/attachment-acceptance.ts'
import { seenAttachments } from '../../models/deploy/attachment-views.ts'
import { databaseTypes } from '../../models/deploy/engines/index.ts'
import { mine } from '../../models/resources.ts'
import { accepting } from '../accept.ts'
import { byId, Id, Timestamp, timeOrNull } from '../fields.ts'
import { type Operation, operation } from '../operation.ts'
import { ConfigVarName, type ShownInstance } from './instances.ts'

const AttachmentView = z
  .strictObject({
    database_id: Id,
    name: z.string(),
    type: z.enum(databaseTypes),
    deploy_server_id: Id,
    config_var: z.string(),
    user: z.string().describe('The instance’s user in the database'),
    address: z.string().describe('The address at which the instance reaches the database'),
    status: z.enum(['attaching', 'attached', 'detaching']),
    applied: z
      .boolean()
      .describe(
        'Whether the running process has the config var; false while a change of config vars waits for the next start',
      ),
    reachable: z
      .boolean()
      .nullable()
      .describe('Whether the instance can connect to the database, tried every ten seconds; null: not known'),
    reachable_since: Timestamp.nullable().describe('When `reachable` last changed'),
    attached_at: Timestamp,
  })
  .meta({ id: 'DatabaseAttachment' })

/** The operations that attach and detach databases of deploy servers, for one kind of instance. */
export const instanceDatabases = (
  shown: ShownInstance & { kind: AttachableKind },
  { plural, kind, kind: { title }, view, toView } = shown,
): Operation[] => [
  operation({
    method: 'GET',
    path: `/api/v1/${plural}/{id}/attachments`,
    permission: `${plural}:read`,
    summary: `List the databases attached to a ${title}, and whether the ${title} reaches them`,
    params: byId,
    responses: { 200: z.strictObject({ items: z.array(AttachmentView) }) },
    handle: async ({ caller, params }) => {
      const seen = await seenAttachments(await mine(kind.resource, caller, params.id))
      return {
        items: seen.map(({ attachment, database, path, applied }) => ({
          database_id: attachment.database_id,
          name: database,
          type: attachment.type,
          deploy_server_id: attachment.deploy_server_id,
          config_var: attachment.config_var,
          user: attachment.user,
          address: `${path.ip_address}:${path.port}`,
          status: attachment.status,
          applied,
          reachable: path.reachable,
          reachable_since: timeOrNull(path.reachable_since),
          attached_at: attachment.created_at.toISOString(),
        })),
      }
    },
  }),

  operation({
    method: 'POST',
    path: `/api/v1/${plural}/{id}/attachments/database`,
    permission: `${plural}:update`,
    summary: `Attach a database of a deploy server to a ${title}; the ${title} gets the config var at its next start`,
    params: byId,
    body: z.strictObject({
      database_id: Id,
      config_var: ConfigVarName.default('DATABASE_URL').describe(
        'The config var that gets the database’s URL',
      ),
    }),
    responses: { 202: view },
    handle: ({ caller, params, body }) =>
      accepting(caller, toView, (by) => acceptAttachDatabase(kind, by, params.id, body)),
  }),

  operation({
    method: 'DELETE',
    path: `/api/v1/${plural}/{id}/attachments/database/{database_id}`,
    permission: `${plural}:update`,
    summary: `Detach a database from a ${title}; the database user and the network path are removed at once`,
    params: z.strictObject({ id: Id, database_id: Id }),
    responses: { 202: view },
    handle: ({ caller, params: { id, database_id } }) =>
      accepting(caller, toView, (by) => acceptDetachDatabase(kind, by, id, { database_id })),
  }),
]
