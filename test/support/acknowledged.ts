import type { DatabaseBody } from './clients/databases.ts'
import { inClickHouse, inMariadb, inPostgresql, type insideOf, type Written } from './database-insides.ts'
import { eventually } from './eventually.ts'

// Clients of the deploy server's network that write the numbers 1, 2, 3 … to a database at once and without a pause, and print
// each that the engine has acknowledged. Their image is the engine's.

const clients = 4

interface Writer {
  /** Makes the table, in the container of the database. */
  prepare: string
  /** Writes `$i`, and each further number of its client. Prints those that were acknowledged. */
  write: (url: URL) => string
  /** Prints the numbers that are there, in the container of the database. */
  found: string
}

/** A process for each number. */
const each = (insert: string): string =>
  `while :; do if ${insert} >/dev/null 2>&1; then echo $i; else sleep 0.1; fi; i=$((i+${clients})); done`

const writers: Record<Written, Writer> = {
  redis: {
    prepare: 'true',
    write: ({ href }) => each(`[ "$(redis-cli -u ${href} set number:$i 1 2>/dev/null)" = OK ]`),
    found: "redis-cli --scan --pattern 'number:*' | tr -d ':a-z'",
  },
  postgresql: {
    prepare: inPostgresql('CREATE TABLE numbers (id int)'),
    write: ({ href }) => each(`psql '${href}' -qc "INSERT INTO numbers VALUES ($i)"`),
    found: inPostgresql('SELECT id FROM numbers'),
  },
  mariadb: {
    prepare: inMariadb('CREATE TABLE numbers (id int)'),
    write: ({ hostname, port, username, password, pathname }) =>
      each(
        `MYSQL_PWD=${password} mariadb -h ${hostname} -P ${port} -u ${username} ${pathname.slice(1)} -e "INSERT INTO numbers VALUES ($i)"`,
      ),
    found: inMariadb('SELECT id FROM numbers'),
  },
  mongodb: {
    prepare: 'true',
    // One process for all numbers, since its shell is a large program; with pauses, since all are read back in one answer.
    write: ({ href }) =>
      `node -e "const { MongoClient } = require('/opt/driver/node_modules/mongodb'); const numbers = new MongoClient('${href}', { serverSelectionTimeoutMS: 600_000 }).db().collection('numbers'); const write = (id) => numbers.insertOne({ id }).then(() => console.log(id), () => {}).then(() => setTimeout(write, 10, id + ${clients})); write($i)"`,
    found:
      'mongosh --quiet -u "$MONGO_INITDB_ROOT_USERNAME" -p "$MONGO_INITDB_ROOT_PASSWORD" --authenticationDatabase admin --eval "(await db.runCommand({ find: \'numbers\', batchSize: 100000 })).cursor.firstBatch.forEach((one) => print(one.id))" "mongodb://127.0.0.1:27017/$MONGO_INITDB_DATABASE"',
  },
  clickhouse: {
    prepare: inClickHouse('CREATE TABLE numbers (id UInt32) ENGINE = MergeTree ORDER BY id'),
    write: ({ href }) => each(`wget -q -O /dev/null --post-data "INSERT INTO numbers VALUES ($i)" '${href}'`),
    found: inClickHouse('SELECT id FROM numbers'),
  },
}

const numbersIn = (text: string): number[] => text.split(/\s+/).filter(Boolean).map(Number)

export async function writeTo(
  inside: ReturnType<typeof insideOf>,
  { id, version, connection_string }: DatabaseBody,
  type: Written,
) {
  const { prepare, write, found } = writers[type]
  await inside.runIn(id, prepare)
  const loop = `for i in $(seq ${clients}); do ${write(new URL(connection_string ?? ''))} & done; wait`
  const name = `writer-${id}`
  const image = `keelson/test-${type}:${version}`
  await inside.run(
    `docker run -d --name ${name} --entrypoint sh ${image} -c '${loop.replaceAll("'", `'\\''`)}'`,
  )
  const acknowledged = async () => numbersIn(await inside.run(`docker logs ${name}`))
  return {
    /** Waits until so many more have been acknowledged than now, of each client at least one. */
    async goesOn(count: number): Promise<void> {
      const before = (await acknowledged()).length
      await eventually(async () => {
        const further = (await acknowledged()).slice(before)
        return further.length >= count && new Set(further.map((one) => one % clients)).size === clients
      })
    },
    /** Ends the clients. Returns what was acknowledged, and what of that is not there. */
    async end(): Promise<{ acknowledged: number; lost: number[] }> {
      await inside.run(`docker stop -t 0 ${name}`)
      const noted = await acknowledged()
      await inside.run(`docker rm -f ${name}`)
      const there = new Set(numbersIn(await inside.runIn(id, found)))
      return { acknowledged: noted.length, lost: noted.filter((one) => !there.has(one)) }
    },
  }
}
