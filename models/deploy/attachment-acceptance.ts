import { newId } from '../../lib/ids.ts'
import { NotFound, Problem, StateConflict } from '../../lib/problem.ts'
import { begin, type By } from '../acceptance.ts'
import type { AttachableKind, InstanceDocument } from '../compute/instances.ts'
import type { Accepted } from '../operations.ts'
import { leadPath, type PathTarget, takePath } from '../network/paths.ts'
import { lockParent } from '../parents.ts'
import { mine } from '../resources.ts'
import {
  Attachment,
  type AttachmentDocument,
  attachmentsOf,
  ConfigVarTaken,
  sealUser,
  userOf,
} from './attachments.ts'
import { credentialsOf, Database, type DatabaseDocument, databaseResource } from './databases.ts'
import { DeployServer, type DeployServerDocument, deployServerResource } from './deploy-servers.ts'
import { engineOf } from './engines/index.ts'

// The acceptance rules for attachments of databases, which are operations on instances.

/** The most databases of one instance: each path takes a namespace of its host. */
const attachedAtMost = 8

export interface NewAttachment {
  database_id: string
  config_var: string
}

/**
 * Accepts the attachment of a database to an instance. Throws NotFound (the database), StateConflict unless it runs and its
 * deploy server stays,
 * `already_attached`, `no_nic`, `too_many_databases`, ConfigVarTaken and `subnet_full`.
 */
export const acceptAttachDatabase = (
  kind: AttachableKind,
  by: By,
  id: string,
  { database_id, config_var }: NewAttachment,
): Promise<Accepted<InstanceDocument>> => {
  const attachment_id = newId()
  return begin(by, kind.resource, id, 'attach_database', {
    input: { attachment_id },
    async reserve(instance) {
      const database = await runningDatabase(by, database_id)
      // So its deletion finds the attachment.
      const server = await lockParent(deployServerResource, by.tenant_id, database.deploy_server_id)
      const [nic] = instance.nics
      if (!nic) {
        const detail = `The ${kind.title} has no NIC: attach one first, so that it can reach the database`
        throw new Problem(409, 'no_nic', 'The instance is in no subnet', detail)
      }
      await mayHaveOneMore(kind, instance, { database_id, config_var })
      await takePath({
        _id: attachment_id,
        tenant_id: by.tenant_id,
        instance_id: id,
        nic,
        port: engineOf(database.type).port,
        target: targetIn(server, database),
      })
      await new Attachment({
        _id: attachment_id,
        tenant_id: by.tenant_id,
        instance_id: id,
        instance_kind: kind.kind,
        database_id,
        deploy_server_id: database.deploy_server_id,
        type: database.type,
        config_var,
        user: userOf(attachment_id),
        credentials_sealed: await sealUser(attachment_id, await credentialsOf(database)),
        status: 'attaching',
      }).save()
    },
  })
}

/** In the same transaction its deletion cannot be accepted. */
async function runningDatabase({ tenant_id }: By, _id: string): Promise<DatabaseDocument> {
  const running = { _id, tenant_id, status: 'running' as const }
  const database = await Database.findOneAndUpdate(
    running,
    { $set: { has_users: true }, $inc: { attachments_made: 1 } },
    { timestamps: false },
  ).lean()
  if (database) return database
  const { status } = await mine(databaseResource, { tenant_id }, _id)
  throw new StateConflict('attach the database', status)
}

async function mayHaveOneMore(
  { title, openConfigVars }: AttachableKind,
  instance: InstanceDocument,
  { database_id, config_var }: NewAttachment,
): Promise<void> {
  const others = await attachmentsOf(instance)
  if (others.some((other) => other.database_id === database_id))
    throw new Problem(409, 'already_attached', 'The database is already attached')
  if (others.length >= attachedAtMost) {
    const detail = `A ${title} can have at most ${attachedAtMost} attached databases`
    throw new Problem(409, 'too_many_databases', 'Too many databases', detail)
  }
  if (others.some((other) => other.config_var === config_var))
    throw new ConfigVarTaken(config_var, 'the URL of another attached database')
  if (config_var in (await openConfigVars(instance)))
    throw new ConfigVarTaken(config_var, `set in the config vars: remove it there, or choose another name`)
}

/** Where a database is reached in its deploy server's network. Throws StateConflict if it has no place. */
function targetIn(
  { subnet_id, nodes }: DeployServerDocument,
  { volume_node, machine_port, status }: DatabaseDocument,
): PathTarget {
  const ip_address = nodes.find(({ name }) => name === volume_node)?.ip_address
  if (!subnet_id || !ip_address || machine_port === null)
    throw new StateConflict('attach the database', status)
  return { subnet_id, ip_address, port: machine_port }
}

/** Has the paths to a database lead to where it is, if it has been made anew elsewhere. */
export async function leadPathsTo(database: DatabaseDocument): Promise<void> {
  const { _id: database_id, tenant_id, deploy_server_id } = database
  const ids = await Attachment.distinct('_id', { tenant_id, database_id })
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
  if (server) for (const id of ids) await leadPath(id, targetIn(server, database))
}

/** Accepts the detachment of a database. Throws NotFound if it is not attached to the instance. */
export const acceptDetachDatabase = async (
  kind: AttachableKind,
  by: By,
  id: string,
  { database_id }: { database_id: string },
): Promise<Accepted<InstanceDocument>> => {
  await mine(kind.resource, by, id)
  const attachment = await attachmentTo(by, id, database_id)
  return begin(by, kind.resource, id, 'detach_database', { input: { attachment_id: attachment._id } })
}

async function attachmentTo(
  { tenant_id }: By,
  instance_id: string,
  database_id: string,
): Promise<AttachmentDocument> {
  const attachment = await Attachment.findOne({ tenant_id, instance_id, database_id }).lean()
  if (!attachment) throw new NotFound('attached database')
  return attachment
}
