import { createHash } from 'node:crypto'
import type { DatabaseUsersOnHost } from '../../lib/deploy-protocol.ts'
import type { Observer } from '../compute/observer.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Attachment, type AttachmentDocument, openUser } from './attachments.ts'
import { type DatabaseOnHost, databasesOn } from './databases-on-hosts.ts'
import { engineOf } from './engines/index.ts'

// The users of attached instances that the databases on a host are to have.

interface Wanted extends DatabaseOnHost {
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
  const found = await databasesOn(hostId, { has_users: true })
  if (found.length === 0) return []
  const attachments = await Attachment.find({
    database_id: { $in: found.map(({ database }) => database._id) },
    status: { $ne: 'detaching' },
  })
    .setOptions(everyTenant)
    .sort({ _id: 1 })
    .lean()
  return found.map(({ database, machine_id }) => {
    const its = attachments.filter(({ database_id }) => database_id === database._id)
    return { database, machine_id, attachments: its }
  })
}
