import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { defineResource, mine, type ResourceDocument, resourceSchema, wholeFeed } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import { deployServerResource } from './deploy-servers.ts'
import type { Configuration, DatabaseCredentials } from './engines/engine.ts'
import { type DatabaseType, databaseTypes } from './engines/index.ts'

export const databaseStates = states(
  {
    creating: {},
    running: {
      stop: 'stopping',
      restart: 'restarting',
      restore: 'restoring',
      upgrade: 'upgrading',
      publish: 'publishing',
      unpublish: 'unpublishing',
      delete: 'deleting',
    },
    stopped: { start: 'starting', restore: 'restoring', delete: 'deleting' },
    error: {
      start: 'starting',
      restart: 'restarting',
      stop: 'stopping',
      restore: 'restoring',
      delete: 'deleting',
    },
  },
  { supersede: ['delete'], final: ['stop', 'unpublish', 'delete'] },
)

/** What a database is started with. */
export interface DatabaseSettings {
  version: string
  /** With its tag. */
  image: string
  cpu_cores: number
  memory_mib: number
  configuration: Configuration
}

/** The volume that is to take the place of a database's data, and what the database will be with it. */
export interface Refill {
  /** The operation that fills it. Absent: recorded before refills had it. */
  operation_id?: string
  /** The copy that is restored into it. Null: it is a former volume. */
  execution_id: string | null
  storage_id: string
  version: string
  image: string
  /** What the database goes back to if it does not run with that volume. */
  before: { version: string; image: string }
  /** The storage that had the data until the volume took its place. Absent: it has not. */
  former_id?: string
  /** What it is as a former volume. Absent: it is a new one. */
  returns?: FormerVolume
  /** The moment to which it is brought. Absent: that of the copy. */
  at?: Date | null
  /** Clients may have written to it: it is kept as a former volume if the database goes back. */
  stays?: boolean
  /** What the engine that fills the volume takes on the worker beside the database. */
  memory_mib: number
}

/** The backup with which a database begins, and the moment to which it is brought then. Absent: that of the backup. */
export interface BeginsWith {
  execution_id: string
  at?: string
}

/** The former volume to which a database goes back, and the image of its version. */
export interface ReturnsTo {
  volume_id: string
  image: string
}

/** A volume with the data that a database had before a restore or an upgrade. It is kept until it is deleted. */
export interface FormerVolume {
  storage_id: string
  version: string
  kept_at: Date
}

/** A database of a deploy server: one engine with its volumes, on the worker that has them. */
export interface DatabaseDocument extends ResourceDocument<StateOf<typeof databaseStates>>, DatabaseSettings {
  deploy_server_id: string
  type: DatabaseType
  /** Sealed: DatabaseCredentials. */
  credentials_sealed: string
  /** The worker that has its volumes. Null: it has none yet. */
  volume_node: string | null
  /**
   * The worker's port that leads to it, for as long as the database exists. Since no two containers can have it, no two
   * engines ever run on one volume.
   */
  machine_port: number | null
  /** Its service is to run. */
  runs: boolean
  /** What its service was last started with; the fields above are for its next start. Null: it never was. */
  applied: (DatabaseSettings & { mounts: { id: string; mount_path: string }[]; starts: number }) | null
  /** It has answered once, so its volumes have something to lose. */
  has_data: boolean
  /** Until it has answered: a start after a failed creation begins with it, too. Null: it begins empty. */
  begins_with: BeginsWith | null
  refill: Refill | null
  /** Its engine runs without a port, so that no client changes what is copied. */
  isolated: boolean
  former_volumes: FormerVolume[]
  /** It is to be recoverable to any moment. Null: it is not. */
  archiving: { target_id: string | null } | null
  /** Its data may have users of attached instances. */
  has_users: boolean
  /** PEM, for clients outside. */
  tls_certificate: string
  tls_key_sealed: string
  /** How the deploy server's load balancer leads clients outside to it. Null: it does not. */
  published: { listener_port: number; certificate_id: string | null } | null
  /** Counts attachments: each conflicts with the acceptance of another operation. */
  attachments_made: number
}

const { Mixed } = Schema.Types
const schema = resourceSchema<DatabaseDocument>(
  {
    deploy_server_id: { type: String, required: true },
    type: { type: String, required: true, enum: databaseTypes },
    version: { type: String, required: true },
    image: { type: String, required: true },
    cpu_cores: { type: Number, required: true },
    memory_mib: { type: Number, required: true },
    configuration: { type: Mixed, default: {} },
    credentials_sealed: { type: String, required: true },
    volume_node: { type: String, default: null },
    machine_port: { type: Number, default: null },
    runs: { type: Boolean, default: false },
    applied: { type: Mixed, default: null },
    has_data: { type: Boolean, default: false },
    begins_with: { type: Mixed, default: null },
    refill: { type: Mixed, default: null },
    isolated: { type: Boolean, default: false },
    former_volumes: { type: [Mixed], default: [] },
    archiving: { type: Mixed, default: null },
    has_users: { type: Boolean, default: false },
    tls_certificate: { type: String, required: true },
    tls_key_sealed: { type: String, required: true },
    published: { type: Mixed, default: null },
    attachments_made: { type: Number, default: 0 },
  },
  databaseStates,
  'databases',
  { within: 'deploy_server_id' },
)
schema.index({ deploy_server_id: 1 })
export const Database = mongoose.model<DatabaseDocument>('Database', schema)
export const databaseResource = defineResource('database', Database, databaseStates, {
  feed: wholeFeed,
  /** A refill ends with its operation, also if that could not be undone. */
  async comesToRest({ _id, tenant_id }) {
    await Database.updateOne({ _id, tenant_id, refill: { $ne: null } }, { $set: { refill: null } })
  },
})

/** Also of the volumes that are kept when a database is deleted. */
export const credentialsContext = (id: string): string => `databases.credentials:${id}`
sealedField(Database, 'credentials_sealed', ({ _id }) => credentialsContext(_id))

export const tlsContext = (id: string): string => `databases.tls_key:${id}`
sealedField(Database, 'tls_key_sealed', ({ _id }) => tlsContext(_id))

const random = (bytes: number): string => randomBytes(bytes).toString('hex')

/** New credentials, sealed. */
export const makeCredentials = (id: string): Promise<string> =>
  sealCredentials(id, {
    user: 'keelson',
    password: random(20),
    database: 'app',
    root_password: random(20),
  })

export const sealCredentials = (id: string, credentials: DatabaseCredentials): Promise<string> =>
  sealSecret(credentials, credentialsContext(id))

export const credentialsOf = ({
  _id,
  credentials_sealed,
}: Pick<DatabaseDocument, '_id' | 'credentials_sealed'>): Promise<DatabaseCredentials> =>
  unsealSecret<DatabaseCredentials>(credentials_sealed, credentialsContext(_id))

/** The database of this deploy server of the caller's tenant. Throws NotFound. */
export async function databaseOf(
  caller: { tenant_id: string },
  deployServerId: string,
  id: string,
): Promise<DatabaseDocument> {
  await mine(deployServerResource, caller, deployServerId)
  const database = await mine(databaseResource, caller, id)
  if (database.deploy_server_id !== deployServerId) throw new NotFound('database')
  return database
}

/** Whether an open operation fills a volume. A refill of an earlier one is left from before refills ended with it. */
export const isFilling = ({
  refill,
  operation_id,
}: Pick<DatabaseDocument, 'refill' | 'operation_id'>): boolean =>
  operation_id !== null && refill?.operation_id === operation_id

/** The database without a check of its tenant, for activities. Null if it is gone. */
export const findDatabase = (id: string): Promise<DatabaseDocument | null> =>
  Database.findById(id).setOptions(everyTenant).lean()

/** The databases of a deploy server whose services are to run. */
export const runningDatabases = (deploy_server_id: string): Promise<DatabaseDocument[]> =>
  Database.find({ deploy_server_id, runs: true }).setOptions(everyTenant).lean()
