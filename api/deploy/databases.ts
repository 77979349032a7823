import { z } from 'zod'
import { begin } from '../../models/acceptance.ts'
import {
  acceptDatabase,
  acceptDatabaseDeletion,
  acceptDatabaseStart,
  acceptRestore,
  acceptUpgrade,
  changeDatabase,
  forgetFormerVolume,
} from '../../models/deploy/database-acceptance.ts'
import {
  Database,
  type DatabaseDocument,
  databaseOf,
  databaseResource,
} from '../../models/deploy/databases.ts'
import { tlsNameOf } from '../../models/deploy/database-tls.ts'
import {
  type MomentRange,
  pointInTimeStates,
  type SeenPointInTime,
} from '../../models/deploy/point-in-time.ts'
import { databaseTypes } from '../../models/deploy/engines/index.ts'
import type { Accepted } from '../../models/operations.ts'
import { seenDatabases } from '../../models/deploy/database-views.ts'
import { accepting, byOf } from '../accept.ts'
import { byId, commonView, Id, Name, resourceView, Tags, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { PortNumber } from '../network/load-balancer-fields.ts'
import { inDeployServer } from './children.ts'
import { path as serverPath } from './deployments.ts'

const Configuration = z
  .record(z.string().max(64), z.union([z.string().max(255), z.number(), z.boolean()]))
  .describe('Settings of the engine; an error lists the settings that it takes')

const MomentRangeView = z.strictObject({ earliest: Timestamp, latest: Timestamp })

const PointInTimeView = z
  .strictObject({
    enabled: z.boolean(),
    target_id: Id.nullable().describe('The tenant’s bucket for its log; null: the platform’s storage'),
    status: z
      .enum(pointInTimeStates)
      .describe(
        '`starting`: there is no base backup yet. `paused`: nothing is archived, and `reason` says why',
      ),
    reason: z.string().nullable(),
    earliest: Timestamp.nullable().describe('The earliest time to which it can be recovered; null: none yet'),
    latest: Timestamp.nullable().describe('The latest such time'),
    ranges: z
      .array(MomentRangeView)
      .describe('All ranges of such times, including those before a restore, an upgrade or a recovery'),
  })
  .meta({ id: 'PointInTime' })

const PointInTimeChange = z.strictObject({
  enabled: z.boolean(),
  target_id: Id.nullable()
    .optional()
    .describe('The tenant’s bucket for the log. Default: as before, or the platform’s storage'),
})
const Moment = z.iso.datetime({ offset: true }).transform((text) => new Date(text))

const DatabaseView = z
  .strictObject({
    ...resourceView,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    type: z.enum(databaseTypes),
    engine: z.enum(databaseTypes).describe('The same as `type`'),
    version: z.string(),
    upgrades: z.array(z.string()).describe('Versions that can use its data unchanged'),
    internal_host: z.string().nullable().describe('Its address in the deploy server’s network'),
    internal_port: PortNumber.nullable(),
    public_host: z
      .string()
      .nullable()
      .describe('The host at which outside clients reach it over TLS; null unless published'),
    public_port: PortNumber.nullable(),
    tls_certificate_pem: z.string().describe('The self-signed certificate that outside clients must trust'),
    tls_server_name: z.string().describe('The name in the certificate'),
    worker: z.string().nullable().describe('The worker that has its volumes'),
    cpu_cores: z.number(),
    memory_mib: z.int(),
    configuration: Configuration,
    pending_changes: z.boolean().describe('Whether changes wait for the next restart'),
    major_upgrades: z.array(z.string()).describe('Versions to which `upgrade` can bring it'),
    former_volumes: z
      .array(z.strictObject({ id: Id, version: z.string(), kept_at: Timestamp }))
      .describe('Volumes with the data from before a restore or an upgrade, until they are deleted'),
    point_in_time: PointInTimeView.nullable().describe(
      'Recovery to a point in time; null: its engine does not support it',
    ),
  })
  .meta({ id: 'Database' })
type View = z.output<typeof DatabaseView>

const DatabaseWithSecrets = z
  .strictObject({
    ...DatabaseView.shape,
    connection_string: z
      .string()
      .nullable()
      .describe('For applications of the deploy server; null without the permission `deploy_servers:manage`'),
    public_connection_string: z.string().nullable().describe('For outside clients; null unless published'),
  })
  .meta({ id: 'DatabaseWithSecrets' })

const sizes = {
  cpu_cores: z
    .number()
    .min(0.05)
    .max(64)
    .multipleOf(0.01)
    .describe('The most CPU cores that the database may use'),
  memory_mib: z.int().min(8).max(65_536),
}

const byDatabase = z.strictObject({ id: Id, db: Id })
const path = `${serverPath}/databases`

async function toViews(databases: DatabaseDocument[]): Promise<View[]> {
  const seen = await seenDatabases(databases)
  return databases.map((database) => {
    const { upgrades, major_upgrades, internal_host, pending_changes, outside, point_in_time } =
      seen.get(database._id) ?? unseen
    return {
      ...commonView(database),
      uuid: database._id,
      deploy_server_id: database.deploy_server_id,
      type: database.type,
      engine: database.type,
      version: database.version,
      upgrades,
      internal_host,
      internal_port: database.machine_port,
      public_host: outside?.host ?? null,
      public_port: outside?.port ?? null,
      tls_certificate_pem: database.tls_certificate,
      tls_server_name: tlsNameOf(database._id),
      worker: database.volume_node,
      cpu_cores: database.cpu_cores,
      memory_mib: database.memory_mib,
      configuration: database.configuration,
      pending_changes,
      major_upgrades,
      former_volumes: database.former_volumes.map(({ storage_id, version, kept_at }) => ({
        id: storage_id,
        version,
        kept_at: time(kept_at),
      })),
      point_in_time: point_in_time && toPointInTime(database, point_in_time),
    }
  })
}

const toRange = ({ earliest, latest }: MomentRange) => ({ earliest: time(earliest), latest: time(latest) })

const toPointInTime = (
  { archiving }: DatabaseDocument,
  { status, reason, range, ranges }: SeenPointInTime,
): z.output<typeof PointInTimeView> => ({
  enabled: Boolean(archiving),
  target_id: archiving?.target_id ?? null,
  status,
  reason,
  earliest: timeOrNull(range?.earliest ?? null),
  latest: timeOrNull(range?.latest ?? null),
  ranges: ranges.map(toRange),
})

const unseen = {
  upgrades: [],
  major_upgrades: [],
  internal_host: null,
  pending_changes: false,
  outside: null,
  point_in_time: null,
}

const viewOf = async (database: DatabaseDocument): Promise<View> => (await toViews([database]))[0] as View
const viewOfAccepted = async ({ document, operation: { _id } }: Accepted<DatabaseDocument>) => ({
  operation_id: _id,
  body: await viewOf(document),
})

/** The HTTP operations on databases. */
export function makeDatabases({ databaseImages = {} }: OperationsContext) {
  return [
    list({
      path,
      permission: 'deploy_servers:read',
      summary: 'List the databases of a deploy server',
      params: byId,
      model: Database,
      view: DatabaseView,
      toViews,
      stored: { uuid: '_id', engine: 'type', internal_port: 'machine_port', worker: 'volume_node' },
      scope: inDeployServer,
    }),

    operation({
      method: 'POST',
      path,
      permission: 'deploy_servers:manage',
      summary: 'Create a database, and wait until its engine answers',
      params: byId,
      body: z.strictObject({
        name: Name.describe('Unique in the deploy server'),
        type: z
          .enum(databaseTypes)
          .optional()
          .describe('Required without `volume_id`, `execution_id` and `database_id`'),
        version: z
          .string()
          .max(32)
          .optional()
          .describe('Default: the newest, or that of the volume or the backup'),
        cpu_cores: sizes.cpu_cores.default(0.5),
        memory_mib: sizes.memory_mib.optional().describe('Default: what the engine usually needs'),
        configuration: Configuration.default({}),
        volume_id: Id.optional().describe(
          'The kept volume of a deleted database; the new database gets that database’s id',
        ),
        execution_id: Id.optional().describe('The backup whose data the database starts with'),
        database_id: Id.optional().describe(
          'The database to recover, possibly deleted; the new database starts with its data at the time `at`',
        ),
        at: Moment.optional().describe('A time to which `point_in_time` of that database allows recovery'),
        point_in_time: PointInTimeChange.default({ enabled: false }),
        tags: Tags.default({}),
      }),
      responses: { 202: DatabaseView },
      handle: async ({ caller, params: { id }, body }) => {
        const { operation_id, body: database } = await accepting(
          caller,
          (one: DatabaseDocument) => one,
          (by) => acceptDatabase(by, id, body, databaseImages),
        )
        return { operation_id, body: await viewOf(database) }
      },
    }),

    operation({
      method: 'GET',
      path: `${path}/{db}`,
      permission: 'deploy_servers:read',
      summary: 'Get a database, with its connection string if the caller may manage it (audited)',
      params: byDatabase,
      responses: { 200: DatabaseWithSecrets },
      reads_secret: true,
      handle: async ({ caller, params: { id, db } }) => {
        const database = await databaseOf(caller, id, db)
        const mayManage = caller.permissions.has('deploy_servers:manage')
        const seen = (await seenDatabases([database], { secrets: mayManage })).get(db)
        const { connection_string = null, public_connection_string = null } = seen ?? {}
        return { ...(await viewOf(database)), connection_string, public_connection_string }
      },
    }),

    operation({
      method: 'PATCH',
      path: `${path}/{db}`,
      permission: 'deploy_servers:manage',
      summary:
        'Change the size, the configuration or the minor version of a database; the next restart applies it',
      params: byDatabase,
      body: z
        .strictObject({
          version: z.string().max(32),
          ...sizes,
          configuration: Configuration,
          point_in_time: PointInTimeChange.describe(
            'Whether, and where, the log for recovery is kept; a change applies without a restart',
          ),
          tags: Tags,
        })
        .partial(),
      responses: { 200: DatabaseView },
      handle: async ({ caller, params: { id, db }, body }) =>
        viewOf(await changeDatabase(await databaseOf(caller, id, db), body, databaseImages)),
    }),

    operation({
      method: 'DELETE',
      path: `${path}/{db}`,
      permission: 'deploy_servers:manage',
      summary: 'Delete a database; its volumes are kept for a new database unless `delete_volumes` is true',
      params: byDatabase,
      query: z.strictObject({
        delete_volumes: z
          .enum(['true', 'false'])
          .default('false')
          .transform((text) => text === 'true')
          .describe('Also destroy its data'),
      }),
      responses: { 202: DatabaseView },
      handle: async ({ caller, params: { id, db }, query }) => {
        await databaseOf(caller, id, db)
        return viewOfAccepted(await acceptDatabaseDeletion(byOf(caller), db, query))
      },
    }),

    operation({
      method: 'POST',
      path: `${path}/{db}/restore`,
      permission: 'deploy_servers:manage',
      summary:
        'Restore a database from a backup, to a point in time, or from a former volume; its present volume is kept',
      params: byDatabase,
      body: z.union([
        z.strictObject({ execution_id: Id.describe('The backup') }),
        z.strictObject({ at: Moment.describe('A time to which its `point_in_time` allows recovery') }),
        z.strictObject({
          volume_id: Id.describe('One of `former_volumes`; the database gets its data and its version'),
        }),
      ]),
      responses: { 202: DatabaseView },
      handle: async ({ caller, params: { id, db }, body }) => {
        await databaseOf(caller, id, db)
        return viewOfAccepted(await acceptRestore(byOf(caller), db, body, databaseImages))
      },
    }),

    operation({
      method: 'POST',
      path: `${path}/{db}/upgrade`,
      permission: 'deploy_servers:manage',
      summary: 'Upgrade a running database to a newer major version; clients cannot reach it meanwhile',
      params: byDatabase,
      body: z.strictObject({ version: z.string().max(32).describe('One of `major_upgrades`') }),
      responses: { 202: DatabaseView },
      handle: async ({ caller, params: { id, db }, body: { version } }) => {
        await databaseOf(caller, id, db)
        return viewOfAccepted(await acceptUpgrade(byOf(caller), db, version, databaseImages))
      },
    }),

    operation({
      method: 'DELETE',
      path: `${path}/{db}/former-volumes/{volume}`,
      permission: 'deploy_servers:manage',
      summary: 'Delete a former volume of a database; the next start, restart or restore destroys it',
      params: z.strictObject({ ...byDatabase.shape, volume: Id }),
      responses: { 204: null },
      handle: async ({ caller, params: { id, db, volume } }) =>
        forgetFormerVolume(await databaseOf(caller, id, db), volume),
    }),

    ...(['start', 'stop', 'restart', 'publish', 'unpublish'] as const).map((verb) =>
      operation({
        method: 'POST',
        path: `${path}/{db}/${verb}`,
        permission: 'deploy_servers:manage',
        summary: summaries[verb],
        params: byDatabase,
        responses: { 202: DatabaseView },
        handle: async ({ caller, params: { id, db } }) => {
          await databaseOf(caller, id, db)
          const by = byOf(caller)
          const starts = verb === 'start' || verb === 'restart'
          return viewOfAccepted(
            await (starts ? acceptDatabaseStart(by, db, verb) : begin(by, databaseResource, db, verb)),
          )
        },
      }),
    ),
  ]
}

const summaries = {
  start: 'Start a stopped database',
  stop: 'Stop a database; it keeps its volumes and its address',
  publish: 'Let clients outside the deploy server reach a running database over TLS',
  unpublish: 'Close a database to clients outside the deploy server',
  restart:
    'Restart a database with its current settings; if it does not answer, it returns to the previous ones',
}
