import { createHash } from 'node:crypto'
import type { DatabaseUsersOnHost } from '../../lib/deploy-protocol.ts'
import { instanceKinds } from '../compute/instance-kinds.ts'
import type { Observer } from '../compute/observer.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Attachment, type AttachmentDocument, openUser } from './attachments.ts'
import { Database, type DatabaseDocument } from './databases.ts'
import { DeployServer } from './deploy-servers.ts'
import { engineOf } from './engines/index.ts'
import { deployMachineKinds } from './machine-providers.ts'

// The users of attached instances that the databases on a host are to have.

interface Wanted {
  database: DatabaseDocument
  machine_id: string
  attachments: AttachmentDocument[]
}

/** The version of the users on a host. It opens no secret. */
export async function databaseUsersVersion(hostId: string): Promise<string> {
  const wanted = await wantedOn(hostId)
  const text = wanted.map(({ database, machine_id, attachments }) => [
    database._id,
    machine_id,
    database.applied?.starts,
    attachments.map(({ _id }) => _id),
  ])
  return createHash('sha256').update(JSON.stringify(text)).digest('hex')
}

/** The users on a host, with their passwords. */
export async function databaseUsersOn(hostId: string): Promise<DatabaseUsersOnHost> {
  const version = await databaseUsersVersion(hostId)
  const databases = (await wantedOn(hostId)).map(async ({ database, machine_id, attachments }) => {
    const { list, make, remove } = engineOf(database.type).users
    const users = attachments.map(async (attachment) => {
      const { user: name, password } = await openUser(attachment)
      return { name, password }
    })
    return {
      id: database._id,
      machine_id,
      starts: database.applied?.starts ?? 0,
      users: await Promise.all(users),
      commands: { list, make, remove },
    }
  })
  return { version, databases: await Promise.all(databases) }
}

export const databaseUsersObserver: Observer = { wanted: databaseUsersVersion }

/** The running databases on a host that have, or had, users of attachments. */
async function wantedOn(hostId: string): Promise<Wanted[]> {
  const machines = await machinesOn(hostId)
  if (machines.size === 0) return []
  const servers = await DeployServer.find({ _id: { $in: [...new Set(machines.values())] } }, { nodes: 1 })
    .setOptions(everyTenant)
    .lean()
  const databases = await Database.find({
    deploy_server_id: { $in: servers.map(({ _id }) => _id) },
    runs: true,
    has_users: true,
  })
    .setOptions(everyTenant)
    .sort({ _id: 1 })
    .lean()
  if (databases.length === 0) return []
  const attachments = await Attachment.find({
    database_id: { $in: databases.map(({ _id }) => _id) },
    status: { $ne: 'detaching' },
  })
    .setOptions(everyTenant)
    .sort({ _id: 1 })
    .lean()
  return databases.flatMap((database) => {
    const server = servers.find(({ _id }) => _id === database.deploy_server_id)
    const machine_id = server?.nodes.find(({ name }) => name === database.volume_node)?.machine_id
    if (!machine_id || !machines.has(machine_id)) return []
    const its = attachments.filter(({ database_id }) => database_id === database._id)
    return [{ database, machine_id, attachments: its }]
  })
}

/** The machines of deploy servers on a host, with the deploy server's id. */
async function machinesOn(host_id: string): Promise<Map<string, string>> {
  const found = await Promise.all(
    deployMachineKinds.map((kind) =>
      instanceKinds[kind].model
        .find({ host_id, managed_by: { $ne: null } }, { managed_by: 1 })
        .setOptions(everyTenant)
        .lean(),
    ),
  )
  return new Map(
    found.flat().flatMap(({ _id, managed_by }) => (managed_by ? [[_id, managed_by] as const] : [])),
  )
}
