import {
  type HostedUsers,
  makeDatabaseUsers,
  makeDatabaseUsersOnHost,
} from '../../../activities/host/database-users.ts'
import type { InstanceEngine } from '../../../drivers/instances.ts'
import { makeTaskCommands } from '../../../drivers/swarm/task-commands.ts'
import type { DatabaseUsersOnHost } from '../../../lib/deploy-protocol.ts'
import type { Logger } from '../../../lib/log.ts'
import { dialMachines } from '../machine-engines.ts'
import type { HostPart } from '../part.ts'

interface Parts {
  engine: Pick<InstanceEngine, 'pipe'>
  wanted: () => Promise<DatabaseUsersOnHost>
  log: Logger
}

/** The users of attached instances in the databases of this host's machines. */
export const openDatabaseUsers = ({ engine, ...parts }: Parts): HostedUsers =>
  makeDatabaseUsers({ commands: makeTaskCommands(dialMachines(engine)), ...parts })

export const databaseUsersPart = (users: HostedUsers): HostPart => ({
  name: 'database_users',
  activities: makeDatabaseUsersOnHost(users),
  version: users.version,
  applyWanted: () => users.apply(),
})
