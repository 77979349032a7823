import { isDeepStrictEqual } from 'node:util'
import { credentialsOf, type DatabaseDocument } from './databases.ts'
import { DeployServer } from './deploy-servers.ts'
import { engineOf, majorUpgradesOf, upgradesOf } from './engines/index.ts'
import { type SeenPointInTime, seenPointInTime } from './point-in-time.ts'
import { publicAddresses } from './published-databases.ts'
import { mountsOf } from './storages.ts'

/** What is shown of a database beside its record. */
export interface SeenDatabase {
  upgrades: string[]
  major_upgrades: string[]
  /** Null before it is placed. */
  internal_host: string | null
  pending_changes: boolean
  /** Null before it is placed, and unless it was asked for. */
  connection_string: string | null
  /** Null unless it is published. */
  outside: { host: string; port: number } | null
  /** Null unless it is published and it was asked for. */
  public_connection_string: string | null
  /** Null: its engine cannot be recovered to any moment. */
  point_in_time: SeenPointInTime | null
}

/** What is shown of databases of one deploy server, by their ids. */
export async function seenDatabases(
  databases: DatabaseDocument[],
  { secrets = false } = {},
): Promise<Map<string, SeenDatabase>> {
  const [first] = databases
  if (!first) return new Map()
  const { deploy_server_id, tenant_id } = first
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
  const addressOf = (node: string | null): string | null =>
    server?.nodes.find(({ name }) => name === node)?.ip_address ?? null
  const addresses = await publicAddresses(databases)
  const seen = databases.map(async (database): Promise<[string, SeenDatabase]> => {
    const { _id, type, version, applied, volume_node } = database
    const internal_host = addressOf(volume_node)
    const outside = addresses.get(_id) ?? null
    return [
      _id,
      {
        upgrades: upgradesOf(type, applied?.version ?? version),
        major_upgrades: majorUpgradesOf(type, applied?.version ?? version),
        internal_host,
        pending_changes: await isPending(database),
        connection_string: secrets ? await urlOf(database, internal_host) : null,
        outside,
        public_connection_string: secrets && outside ? await publicUrlOf(database, outside) : null,
        point_in_time: await seenPointInTime(database),
      },
    ]
  })
  return new Map(await Promise.all(seen))
}

async function urlOf(database: DatabaseDocument, host: string | null): Promise<string | null> {
  if (host === null || database.machine_port === null) return null
  return engineOf(database.type).url(await credentialsOf(database), `${host}:${database.machine_port}`)
}

const publicUrlOf = async (database: DatabaseDocument, { host, port }: { host: string; port: number }) =>
  engineOf(database.type).outside.url(await credentialsOf(database), `${host}:${port}`)

/** Its settings or storages have changed since its last start. */
async function isPending(database: DatabaseDocument): Promise<boolean> {
  const { applied, version, cpu_cores, memory_mib, configuration } = database
  if (!applied) return false
  const settings = { version, cpu_cores, memory_mib, configuration, mounts: await mountsOf(database) }
  const { starts: _, image: __, ...former } = applied
  return !isDeepStrictEqual(settings, former)
}
