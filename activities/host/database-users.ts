import { DatabaseRefused, EngineUnavailable, InstanceNotRunning } from '../../drivers/errors.ts'
import type { TaskCommands } from '../../drivers/swarms.ts'
import { attachedUser, type DatabaseUsersOnHost } from '../../lib/deploy-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeQueue, mapAtOnce } from '../../lib/queue.ts'

interface Parts {
  commands: Pick<TaskCommands, 'run'>
  /** Fetches the wanted users from the platform. */
  wanted: () => Promise<DatabaseUsersOnHost>
  log: Logger
}

type Wanted = DatabaseUsersOnHost['databases'][number]

// Each runs a few commands in a machine.
const databasesAtOnce = 4
const answersWithinSec = 30

/** A database that is to run may have ended: with its machine, or to be started anew. */
function mayRunSoon(error: unknown): never {
  throw error instanceof InstanceNotRunning
    ? new EngineUnavailable('The database is not running', error)
    : error
}

/** The users of attached instances, in the databases on one host. */
export type HostedUsers = ReturnType<typeof makeDatabaseUsers>

/**
 * Brings the databases on a host to the users that they are to have. Each run fetches all of them, and asks only the
 * databases where something has changed: the list, or the container, since Redis forgets its users when it ends.
 */
export function makeDatabaseUsers({ commands, wanted, log }: Parts) {
  let now: DatabaseUsersOnHost = { version: '', databases: [] }
  let version: string | null = null
  /** When the containers of services have started, as far as it is known. */
  let startedAt = new Map<string, string>()
  /** What was applied, by the database's id. */
  const done = new Map<string, string>()
  const inTurn = makeQueue()

  const textOf = (database: Wanted): string => JSON.stringify([database, startedAt.get(database.id)])

  const isOutdated = (database: Wanted): boolean =>
    done.has(database.id) && done.get(database.id) !== textOf(database)

  async function bringAll(): Promise<{ faults: Map<string, unknown>; leftovers: Map<string, unknown> }> {
    version = null
    now = await wanted()
    for (const id of done.keys()) if (!now.databases.some((one) => one.id === id)) done.delete(id)
    const faults = new Map<string, unknown>()
    const leftovers = new Map<string, unknown>()
    await mapAtOnce(now.databases, databasesAtOnce, async (database) => {
      const text = textOf(database)
      if (done.get(database.id) === text) return
      done.delete(database.id)
      try {
        const left = await bring(database)
        if (left.length) leftovers.set(database.id, left[0])
        else done.set(database.id, text)
      } catch (error) {
        faults.set(database.id, error)
      }
    })
    if (faults.size === 0 && leftovers.size === 0) version = now.version
    for (const [id, err] of faults) log.info({ err, id }, 'a database does not have its users yet')
    for (const [id, err] of leftovers) log.warn({ err, id }, 'a database still has users that are to go')
    return { faults, leftovers }
  }

  /** Returns why users could not be removed. One that stays keeps no other from going, nor a new one from coming. */
  async function bring({
    id,
    machine_id,
    users,
    commands: { list, make, remove },
  }: Wanted): Promise<unknown[]> {
    const run = async (command: string, of: { name?: string; password?: string } = {}): Promise<string> => {
      const env = { ATTACHED_USER: of.name ?? '', ATTACHED_PASSWORD: of.password ?? '' }
      const asked = { command, mark: `users-${id}`, timeoutSec: answersWithinSec, env }
      const { exit_code, output } = await commands.run(machine_id, id, asked).catch(mayRunSoon)
      if (exit_code === 0) return output
      // What an engine refuses, it may repeat.
      const said = of.password ? output.replaceAll(of.password, '…') : output
      throw new DatabaseRefused(said.trim().split('\n').at(-1)?.slice(0, 300) ?? '')
    }
    const there = (await run(list)).split('\n').map((line) => line.trim())
    const names = new Set(users.map(({ name }) => name))
    const left: unknown[] = []
    for (const name of there)
      if (attachedUser.test(name) && !names.has(name))
        await run(remove, { name }).catch((error: unknown) => left.push(error))
    for (const user of users) await run(make, user)
    return left
  }

  const apply = () => inTurn(bringAll)

  return {
    apply,
    /** The version applied here; null if unknown. */
    version: (): string | null => version,

    /** Applies all. Throws what has kept this database from its users, and with `gone` what has kept others in it. */
    async ready(id: string, { gone }: { gone: boolean }): Promise<void> {
      const { faults, leftovers } = await apply()
      if (faults.has(id)) throw faults.get(id)
      if (gone && leftovers.has(id)) throw leftovers.get(id)
    },

    /** Takes when the containers of services have started, and does again what one that is new has forgotten. */
    look(running: { id: string; started_at: string }[]): void {
      startedAt = new Map(running.map(({ id, started_at }) => [id, started_at]))
      if (now.databases.some(isOutdated))
        apply().catch((err: unknown) => log.warn({ err }, 'the users of databases were not checked'))
    },
  }
}

export const makeDatabaseUsersOnHost = (users: HostedUsers) => ({
  /**
   * Has the database have its users and no others. Does nothing if it is not to run. Fails by a user that cannot be removed
   * only with `gone`.
   */
  applyDatabaseUsersOnHost: (databaseId: string, gone = false): Promise<void> =>
    users.ready(databaseId, { gone }),
})
