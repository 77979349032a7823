import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import type { InstanceKindName } from '../../lib/host-protocol.ts'
import { Problem } from '../../lib/problem.ts'
import { instanceKinds } from '../compute/instance-kinds.ts'
import { Path, releasePath, unwantPath } from '../network/paths.ts'
import { documentOptions } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import type { DatabaseCredentials } from './engines/engine.ts'
import { type DatabaseType, databaseTypes, engineOf } from './engines/index.ts'

// A database of a deploy server that a container or a microVM uses: with a user of its own in it, a path to it, and its URL in
// a config var. The record is what makes all three: hosts bring about users and paths, and the variable is composed of it.

/** `attaching`: its user and its path are wanted, but not its variable. `detaching`: nothing of it is. */
export type AttachmentStatus = 'attaching' | 'attached' | 'detaching'

export interface AttachmentDocument {
  /** The path has this id, too. */
  _id: string
  tenant_id: string
  instance_id: string
  instance_kind: InstanceKindName
  database_id: string
  deploy_server_id: string
  type: DatabaseType
  config_var: string
  /** Its user in the database. */
  user: string
  /** Sealed: DatabaseCredentials of that user. */
  credentials_sealed: string
  status: AttachmentStatus
  created_at: Date
  updated_at: Date
}

const schema = new Schema<AttachmentDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    instance_id: { type: String, required: true },
    instance_kind: { type: String, required: true },
    database_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    type: { type: String, required: true, enum: databaseTypes },
    config_var: { type: String, required: true },
    user: { type: String, required: true },
    credentials_sealed: { type: String, required: true },
    status: { type: String, required: true, enum: ['attaching', 'attached', 'detaching'] },
  },
  { ...documentOptions, collection: 'attachments' },
)
tenantScoped(schema)
schema.index({ instance_id: 1, database_id: 1 }, { unique: true })
schema.index({ instance_id: 1, config_var: 1 }, { unique: true })
schema.index({ database_id: 1 })
export const Attachment = mongoose.model<AttachmentDocument>('Attachment', schema)

const contextOf = (id: string): string => `attachments.credentials:${id}`
sealedField(Attachment, 'credentials_sealed', ({ _id }) => contextOf(_id))

/** The name of an attachment's user: short enough for every engine, and no name of a tenant's (attachedUser). */
export const userOf = (id: string): string => `k_${id.replaceAll('-', '').slice(-24)}`

/** The credentials of a new user, sealed. */
export const sealUser = (id: string, { database }: DatabaseCredentials): Promise<string> => {
  const password = randomBytes(20).toString('hex')
  const credentials: DatabaseCredentials = { user: userOf(id), password, database, root_password: '' }
  return sealSecret(credentials, contextOf(id))
}

export const openUser = ({ _id, credentials_sealed }: AttachmentDocument): Promise<DatabaseCredentials> =>
  unsealSecret<DatabaseCredentials>(credentials_sealed, contextOf(_id))

type Owner = { _id: string; tenant_id: string }

/** The attachments of an instance, in the order of their creation. */
export const attachmentsOf = ({ _id, tenant_id }: Owner): Promise<AttachmentDocument[]> =>
  Attachment.find({ tenant_id, instance_id: _id }).sort({ _id: 1 }).lean()

/** The config vars that are composed of an instance's attachments. */
export async function attachedVars(instance: Owner): Promise<Record<string, string>> {
  const attachments = (await attachmentsOf(instance)).filter(({ status }) => status === 'attached')
  if (attachments.length === 0) return {}
  const ids = attachments.map(({ _id }) => _id)
  const paths = await Path.find({ _id: { $in: ids }, tenant_id: instance.tenant_id }).lean()
  const pathOf = new Map(paths.map((path) => [path._id, path]))
  const vars = attachments.map(async (attachment): Promise<[string, string][]> => {
    const path = pathOf.get(attachment._id)
    if (!path) return []
    const { users, url } = engineOf(attachment.type)
    const address = `${path.ip_address}:${path.port}`
    return [[attachment.config_var, (users.url ?? url)(await openUser(attachment), address)]]
  })
  return Object.fromEntries((await Promise.all(vars)).flat())
}

/** A config var that a database has, or is to have. */
export class ConfigVarTaken extends Problem {
  constructor(name: string, by: string) {
    super(409, 'config_var_taken', 'The config var is taken', `${name} is ${by}`)
  }
}

/**
 * Returns the instance's own config vars among those given: one of an attachment may be given back as it is. Throws
 * ConfigVarTaken for another value.
 */
export async function ownVarsIn(
  instance: Owner,
  vars: Record<string, string>,
): Promise<Record<string, string>> {
  const names = (await attachmentsOf(instance)).map(({ config_var }) => config_var)
  const composed = await attachedVars(instance)
  const other = names.find((name) => name in vars && vars[name] !== composed[name])
  if (other) throw new ConfigVarTaken(other, 'the URL of an attached database: detach that first')
  return Object.fromEntries(Object.entries(vars).filter(([name]) => !names.includes(name)))
}

/** The attachment without a check of its tenant, for activities. Null if it is gone. */
export const findAttachment = (id: string): Promise<AttachmentDocument | null> =>
  Attachment.findById(id).setOptions(everyTenant).lean()

/** Nothing of it is wanted any more. Its record stays until hosts have no more of it. */
export async function beginDetaching(id: string): Promise<void> {
  await Attachment.updateOne({ _id: id }, { $set: { status: 'detaching' } }).setOptions(everyTenant)
  await unwantPath(id)
}

/** Deletes the record, and frees the addresses. Idempotent. */
export async function forgetAttachment(id: string): Promise<void> {
  await releasePath(id)
  await Attachment.deleteOne({ _id: id }).setOptions(everyTenant)
}

/** A process keeps its environment: an instance that runs gets the change of its variables at its next start. */
export async function noteVarsChanged({ instance_kind, instance_id }: AttachmentDocument): Promise<void> {
  await instanceKinds[instance_kind].model
    .updateOne(
      { _id: instance_id, desired_state: { $ne: 'stopped' } },
      { $addToSet: { pending_changes: 'config_vars' } },
    )
    .setOptions(everyTenant)
}
