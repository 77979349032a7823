import { z } from 'zod'
import { mongodbCopies } from './copies/mongodb.ts'
import {
  between,
  type Configuration,
  type DatabaseEngine,
  type DatabaseUsers,
  type EngineMetrics,
  keys,
} from './engine.ts'

const mongosh = (script: string): string =>
  `mongosh --quiet -u "$MONGO_INITDB_ROOT_USERNAME" -p "$MONGO_INITDB_ROOT_PASSWORD" --authenticationDatabase admin --eval '${script}' mongodb://127.0.0.1:27017/admin`

/** The engine's own commands, which throw if they fail. */
const users: DatabaseUsers = {
  list: mongosh('(await db.runCommand({ usersInfo: 1 })).users.forEach((one) => print(one.user))'),
  make: mongosh(`
    const { ATTACHED_USER: user, ATTACHED_PASSWORD: pwd, MONGO_INITDB_DATABASE: of } = process.env
    const its = { pwd, roles: [{ role: "readWrite", db: of }] }
    const { users } = await db.runCommand({ usersInfo: user })
    await db.runCommand(users.length ? { updateUser: user, ...its } : { createUser: user, ...its })`),
  remove: mongosh(`
    const user = process.env.ATTACHED_USER
    const { users } = await db.runCommand({ usersInfo: user })
    if (users.length) {
      await db.runCommand({ killAllSessions: [{ user, db: "admin" }] })
      await db.runCommand({ dropUser: user })
    }`),
}

/** The shell prints large numbers as objects, unless they are converted. */
const metrics: EngineMetrics = {
  script: `url="mongodb://$MONGO_INITDB_ROOT_USERNAME:$MONGO_INITDB_ROOT_PASSWORD@127.0.0.1:27017/?authSource=admin" \\
mongosh --quiet --nodb --eval '
  const admin = (await connect(process.env.url)).getSiblingDB("admin")
  const tell = (value, name) => print("metric " + value + " " + name)
  const { connections, opcounters, wiredTiger } = await admin.runCommand({ serverStatus: 1 })
  tell(Number(connections.current), "connections")
  tell(Number(connections.current) + Number(connections.available), "connections_max")
  const kinds = ["insert", "query", "update", "delete", "getmore", "command"]
  tell(kinds.reduce((sum, kind) => sum + Number(opcounters[kind]), 0), "queries")
  const misses = Number(wiredTiger.cache["pages read into cache"])
  tell(Math.max(0, Number(wiredTiger.cache["pages requested from the cache"]) - misses), "cache_hits")
  tell(misses, "cache_misses")
  tell(Number((await admin.runCommand({ listDatabases: 1 })).totalSize), "data_bytes")' </dev/null`,
  // Its only client is a whole Node.js, in the database's own memory and cores.
  every_sec: 300,
  without: {
    keys: 'it counts documents by collection alone',
    slow_queries: 'it logs slow operations and does not count them',
  },
}

export const mongodb: DatabaseEngine = {
  title: 'MongoDB',
  image: 'mongo',
  versions: ['8.0.12', '8.0.10', '7.0.22', '6.0.25'],
  line: 2,
  port: 27017,
  data_path: '/data/db',
  // Beside the engine, its shell alone takes 135 MiB, which looks after its health, its users and its metrics.
  memory_mib: { least: 320, usual: 512 },
  stop_grace_sec: 120,
  healthy:
    'mongosh --quiet -u "$MONGO_INITDB_ROOT_USERNAME" -p "$MONGO_INITDB_ROOT_PASSWORD" --authenticationDatabase admin --eval "quit(db.runCommand({ ping: 1 }).ok ? 0 : 1)" "mongodb://127.0.0.1:27017/$MONGO_INITDB_DATABASE"',
  env: ({ user, password, database }) => ({
    MONGO_INITDB_ROOT_USERNAME: user,
    MONGO_INITDB_ROOT_PASSWORD: password,
    MONGO_INITDB_DATABASE: database,
  }),
  command: ({ memory_mib, configuration }) => {
    // By default the engine takes half of the machine's memory, not of its own.
    const settings: Configuration = {
      wiredTigerCacheSizeGB: Math.max(0.25, Math.floor((memory_mib - 256) / 2) / 1024),
      ...configuration,
    }
    return ['mongod', ...Object.entries(settings).flatMap(([key, value]) => [`--${key}`, String(value)])]
  },
  configuration: keys({
    wiredTigerCacheSizeGB: z.number().min(0.25).max(1024),
    maxConns: between(10, 65_536),
    slowms: between(0, 3_600_000),
    profile: between(0, 2),
  }),
  url: ({ user, password, database }, address) =>
    `mongodb://${user}:${password}@${address}/${database}?authSource=admin`,
  outside: {
    tls: 'load_balancer',
    url: ({ user, password, database }, address) =>
      `mongodb://${user}:${password}@${address}/${database}?authSource=admin&tls=true`,
  },
  copies: mongodbCopies,
  users,
  metrics,
}
