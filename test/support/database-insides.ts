import type { DeployServerBody } from './client.ts'
import { innerEngine, runOnMachine } from './machines-inside.ts'
import type { TestTenant } from './tenants.ts'

const inMongo = (work: string): string =>
  `node -e "const { MongoClient } = require('/opt/driver/node_modules/mongodb'); const env = process.env; new MongoClient('mongodb://127.0.0.1', { auth: { username: env.MONGO_INITDB_ROOT_USERNAME, password: env.MONGO_INITDB_ROOT_PASSWORD } }).db(env.MONGO_INITDB_DATABASE).collection('rows').${work}.then((found) => { console.log(typeof found === 'number' ? found : ''); process.exit() })"`

const inClickHouse = (query: string): string =>
  `clickhouse-client --user "$CLICKHOUSE_USER" --password "$CLICKHOUSE_PASSWORD" --database "$CLICKHOUSE_DB" --query "${query}"`

/** How tests write 1,000 rows to an engine and count them, in its container. */
const statements = {
  postgresql: {
    write:
      'psql -q -h /tmp -U "$POSTGRES_USER" -d "$POSTGRES_DB" -c "CREATE TABLE rows AS SELECT generate_series(1, 1000) AS id"',
    clear: 'psql -q -h /tmp -U "$POSTGRES_USER" -d "$POSTGRES_DB" -c "DROP TABLE rows"',
    count: 'psql -h /tmp -U "$POSTGRES_USER" -d "$POSTGRES_DB" -tAc "SELECT count(*) FROM rows"',
  },
  mariadb: {
    write:
      'MYSQL_PWD="$MARIADB_PASSWORD" mariadb -h 127.0.0.1 -u "$MARIADB_USER" "$MARIADB_DATABASE" -e "CREATE TABLE numbers AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 1000) SELECT id FROM n"',
    clear:
      'MYSQL_PWD="$MARIADB_PASSWORD" mariadb -h 127.0.0.1 -u "$MARIADB_USER" "$MARIADB_DATABASE" -e "DROP TABLE numbers"',
    count:
      'MYSQL_PWD="$MARIADB_PASSWORD" mariadb -h 127.0.0.1 -u "$MARIADB_USER" "$MARIADB_DATABASE" -Ne "SELECT count(*) FROM numbers"',
  },
  mongodb: {
    write: inMongo('insertMany(Array.from({ length: 1000 }, (_, id) => ({ id })))'),
    clear: inMongo('drop()'),
    count: inMongo('countDocuments({})'),
  },
  clickhouse: {
    write: inClickHouse(
      'CREATE TABLE rows ENGINE = MergeTree ORDER BY number AS SELECT number FROM numbers(1000)',
    ),
    clear: inClickHouse('DROP TABLE rows'),
    count: inClickHouse('SELECT count() FROM rows'),
  },
  redis: {
    write: `redis-cli eval "for i = 1, 1000 do redis.call('set', 'key' .. i, i) end" 0`,
    clear: 'redis-cli flushall',
    count: 'redis-cli dbsize',
  },
}
export type Written = keyof typeof statements

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
    write: (id: string, type: Written): Promise<string> => inside.runIn(id, statements[type].write),
    count: async (id: string, type: Written): Promise<number> =>
      Number(await inside.runIn(id, statements[type].count)),
    clear: (id: string, type: Written): Promise<string> => inside.runIn(id, statements[type].clear),
    /** The scratch engines of backups. */
    scratches: async (): Promise<string[]> => {
      const filters = { label: ['keelson.scratch'] }
      const found = await (await innerEngine(owner, machine)).listContainers({ all: true, filters })
      return found.flatMap(({ Names }) => Names)
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
