import type { DeployServerBody } from './client.ts'
import { databasesOf } from './clients/databases.ts'
import { postgresqlMajorOf } from './database-images.ts'
import { isLong } from './long.ts'
import { innerEngine, runOnMachine } from './machines-inside.ts'
import type { TestTenant } from './tenants.ts'

const inMongo = (work: string): string =>
  `node -e "const { MongoClient } = require('/opt/driver/node_modules/mongodb'); const env = process.env; new MongoClient('mongodb://127.0.0.1', { auth: { username: env.MONGO_INITDB_ROOT_USERNAME, password: env.MONGO_INITDB_ROOT_PASSWORD } }).db(env.MONGO_INITDB_DATABASE).collection('rows').${work}.then((found) => { console.log(['number', 'string'].includes(typeof found) ? found : ''); process.exit() })"`

export const inClickHouse = (query: string): string =>
  `clickhouse-client --user "$CLICKHOUSE_USER" --password "$CLICKHOUSE_PASSWORD" --database "$CLICKHOUSE_DB" --query "${query}"`

/** What tests write to a database. */
export const rows = isLong ? 100_000 : 1_000

/** A command for the container of a PostgreSQL. The query has no double quotes. */
export const inPostgresql = (query: string): string =>
  `psql -q -h /tmp -U "$POSTGRES_USER" -d "$POSTGRES_DB" -tAc "${query}"`

export const inMariadb = (query: string): string =>
  `MYSQL_PWD="$MARIADB_PASSWORD" mariadb -h 127.0.0.1 -u "$MARIADB_USER" "$MARIADB_DATABASE" -Ne "${query}"`

/** How tests write rows to an engine, count them, and make one text of all, in its container. */
const statements = {
  postgresql: {
    write: inPostgresql(`CREATE TABLE rows AS SELECT generate_series(1, ${rows}) AS id`),
    clear: inPostgresql('DROP TABLE rows'),
    count: inPostgresql('SELECT count(*) FROM rows'),
    digest: inPostgresql("SELECT md5(string_agg(id::text, ',' ORDER BY id)) FROM rows"),
  },
  mariadb: {
    write: inMariadb(`CREATE TABLE numbers AS SELECT seq AS id FROM seq_1_to_${rows}`),
    clear: inMariadb('DROP TABLE numbers'),
    count: inMariadb('SELECT count(*) FROM numbers'),
    digest: inMariadb(
      'SET SESSION group_concat_max_len = 10000000; SELECT md5(group_concat(id ORDER BY id)) FROM numbers',
    ),
  },
  mongodb: {
    write: inMongo(`insertMany(Array.from({ length: ${rows} }, (_, id) => ({ id })))`),
    clear: inMongo('drop()'),
    count: inMongo('countDocuments({})'),
    digest: inMongo(
      "find({}, { sort: { id: 1 } }).map(({ _id, id }) => _id + id).toArray().then((all) => require('crypto').createHash('md5').update(all.join()).digest('hex'))",
    ),
  },
  clickhouse: {
    write: inClickHouse(
      `CREATE TABLE rows ENGINE = MergeTree ORDER BY number AS SELECT number FROM numbers(${rows})`,
    ),
    clear: inClickHouse('DROP TABLE rows'),
    count: inClickHouse('SELECT count() FROM rows'),
    digest: inClickHouse(
      'SELECT hex(MD5(arrayStringConcat(arraySort(groupArray(toString(number)))))) FROM rows',
    ),
  },
  redis: {
    write: `redis-cli eval "for i = 1, ${rows} do redis.call('set', 'key' .. i, i) end" 0`,
    clear: 'redis-cli flushall',
    count: 'redis-cli dbsize',
    digest: `redis-cli eval "local all = {} for i = 1, ${rows} do all[i] = redis.call('get', 'key' .. i) or '-' end return redis.sha1hex(table.concat(all, ','))" 0`,
  },
}
export type Written = keyof typeof statements

/** What an engine needs for these rows, in MiB. */
export const memoryOf: Record<Written, number> = {
  redis: isLong ? 96 : 32, // it copies itself while it is dumped
  postgresql: 96,
  mariadb: 160,
  mongodb: isLong ? 384 : 320, // its clients are programs of Node.js in its container
  clickhouse: 384,
}

/** What is in the worker of a deploy server. */
export function insideOf({ owner }: TestTenant, server: DeployServerBody) {
  const machine = server.workers[0]?.machine_id ?? ''
  const inside = {
    /** Runs a command in the machine. */
    run: (command: string): Promise<string> => runOnMachine(owner, machine, command),
    /** Runs a command in the container of a database. */
    runIn: (id: string, command: string): Promise<string> =>
      inside.run(
        `docker exec $(docker ps -qf label=keelson.database=${id}) sh -c '${command.replaceAll("'", `'\\''`)}'`,
      ),
    async write(id: string, type: Written): Promise<void> {
      const said = await inside.runIn(id, statements[type].write)
      if ((await inside.count(id, type)) !== rows) throw new Error(`the rows were not written: ${said}`)
    },
    async count(id: string, type: Written): Promise<number> {
      const said = await inside.runIn(id, statements[type].count)
      // No answer is not 0.
      if (!/^\d+$/.test(said)) throw new Error(`the rows were not counted: ${said}`)
      return Number(said)
    },
    /** The same for databases with equal rows. */
    async digest(id: string, type: Written): Promise<string> {
      const said = await inside.runIn(id, statements[type].digest)
      // A client that was killed says nothing.
      if (!said) throw new Error('the rows were not read')
      return said
    },
    clear: (id: string, type: Written): Promise<string> => inside.runIn(id, statements[type].clear),
    /** Whether the engine says that it is the program of this tag. Only the tags of PostgreSQL have several programs. */
    async isOfTag(id: string, type: Written, tag: string): Promise<boolean> {
      if (type !== 'postgresql') return true
      const said = await inside.runIn(id, inPostgresql('SHOW server_version'))
      return said.startsWith(`${await postgresqlMajorOf(tag)}.`)
    },
    /** The scratch engines of backups; of a database: those of its restores and of its backups. */
    scratches: async (database?: string): Promise<string[]> => {
      const filters = { label: ['keelson.scratch'] }
      const found = await (await innerEngine(owner, machine)).listContainers({ all: true, filters })
      const all = found.flatMap(({ Names }) => Names)
      if (database === undefined) return all
      const backups = await databasesOf(owner, server.id).executions(`&database_id=${database}`)
      return all.filter((name) => [database, ...backups.map(({ id }) => id)].some((id) => name.endsWith(id)))
    },
    /** The containers that run with a database's volumes. */
    containers: async (id: string): Promise<string[]> => {
      const filters = { label: [`keelson.database=${id}`] }
      return (await (await innerEngine(owner, machine)).listContainers({ filters })).map(({ Id }) => Id)
    },
    volumes: async (id: string): Promise<string[]> => {
      const filters = { label: [`keelson.database=${id}`] }
      const { Volumes } = await (await innerEngine(owner, machine)).listVolumes({ filters })
      return Volumes.map(({ Name }) => Name)
    },
  }
  return inside
}
