import type { DatabaseBody } from './clients/databases.ts'
import { inClickHouse, inMariadb, inPostgresql, type insideOf, type Written } from './database-insides.ts'
import { eventually } from './eventually.ts'

// A client of the deploy server's network that writes the numbers 1, 2, 3 … to a database without a pause, and prints each
// that the engine has acknowledged. Its image is the engine's.

interface Writer {
  /** Makes the table, in the container of the database. */
  prepare: string
  /** Writes `$i`. */
  insert: (url: URL) => string
  /** Prints the numbers that are there, in the container of the database. */
  found: string
}

const writers: Record<Written, Writer> = {
  redis: {
    prepare: 'true',
    insert: ({ href }) => `[ "$(redis-cli -u ${href} set number:$i 1 2>/dev/null)" = OK ]`,
    found: "redis-cli --scan --pattern 'number:*' | tr -d ':a-z'",
  },
  postgresql: {
    prepare: inPostgresql('CREATE TABLE numbers (id int)'),
    insert: ({ href }) => `psql '${href}' -qc "INSERT INTO numbers VALUES ($i)"`,
    found: inPostgresql('SELECT id FROM numbers'),
  },
  mariadb: {
    prepare: inMariadb('CREATE TABLE numbers (id int)'),
    insert: ({ hostname, port, username, password, pathname }) =>
      `MYSQL_PWD=${password} mariadb -h ${hostname} -P ${port} -u ${username} ${pathname.slice(1)} -e "INSERT INTO numbers VALUES ($i)"`,
    found: inMariadb('SELECT id FROM numbers'),
  },
  mongodb: {
    prepare: 'true',
    // An answer may have the fault of a document beside `ok: 1`.
    insert: ({ host, username, password, pathname }) =>
      `mongosh --quiet -u ${username} -p ${password} --authenticationDatabase admin --eval "if ((await db.runCommand({ insert: 'numbers', documents: [{ id: $i }] })).n !== 1) quit(1)" mongodb://${host}${pathname}`,
    found:
      'mongosh --quiet -u "$MONGO_INITDB_ROOT_USERNAME" -p "$MONGO_INITDB_ROOT_PASSWORD" --authenticationDatabase admin --eval "(await db.runCommand({ find: \'numbers\', batchSize: 100000 })).cursor.firstBatch.forEach((one) => print(one.id))" "mongodb://127.0.0.1:27017/$MONGO_INITDB_DATABASE"',
  },
  clickhouse: {
    prepare: inClickHouse('CREATE TABLE numbers (id UInt32) ENGINE = MergeTree ORDER BY id'),
    insert: ({ href }) => `wget -q -O /dev/null --post-data "INSERT INTO numbers VALUES ($i)" '${href}'`,
    found: inClickHouse('SELECT id FROM numbers'),
  },
}

const numbersIn = (text: string): number[] => text.split(/\s+/).filter(Boolean).map(Number)

export async function writeTo(
  inside: ReturnType<typeof insideOf>,
  { id, version, connection_string }: DatabaseBody,
  type: Written,
) {
  const { prepare, insert, found } = writers[type]
  await inside.runIn(id, prepare)
  const loop = `i=0; while :; do i=$((i+1)); if ${insert(new URL(connection_string ?? ''))} >/dev/null 2>&1; then echo $i; else sleep 0.1; fi; done`
  const name = `writer-${id}`
  const image = `keelson/test-${type}:${version}`
  await inside.run(
    `docker run -d --name ${name} --entrypoint sh ${image} -c '${loop.replaceAll("'", `'\\''`)}'`,
  )
  const acknowledged = async () => numbersIn(await inside.run(`docker logs ${name}`))
  return {
    /** Waits until more has been acknowledged than now. */
    async goesOn(): Promise<void> {
      const before = (await acknowledged()).length
      await eventually(async () => (await acknowledged()).length > before)
    },
    /** Ends the client. Returns what was acknowledged, and what of that is not there. */
    async end(): Promise<{ acknowledged: number; lost: number[] }> {
      await inside.run(`docker stop -t 0 ${name}`)
      const noted = await acknowledged()
      await inside.run(`docker rm -f ${name}`)
      const there = new Set(numbersIn(await inside.runIn(id, found)))
      return { acknowledged: noted.length, lost: noted.filter((one) => !there.has(one)) }
    },
  }
}
