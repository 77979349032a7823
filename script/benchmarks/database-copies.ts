import { setTimeout as delay } from 'node:timers/promises'
import { allCores, type Bench, onWorker, quoted, runBare } from './database-workers.ts'
import { type Row, ratios } from './measure.ts'
import { isEnded, type Stack } from './stack.ts'

// Backups and restores beside the engine's own tools and zstd in a pipe, in the same worker, in turn.

const rounds = 3
const rows = 1_500_000 // some 150 MB as SQL
const keys = 1_000_000 // some 100 MB
const memoryMib = 512
const goal = '≥ 0.85'
const lookEveryMs = 100

const clickhouse = (query: string): string =>
  `clickhouse-client --user "$CLICKHOUSE_USER" --password "$CLICKHOUSE_PASSWORD" --database "$CLICKHOUSE_DB" --query "${query}"`

/** Scripts for the container of an engine, and the names of their programs. Nobody restores a Redis but by its own file. */
const tools = {
  postgresql: {
    fill: `PGPASSWORD="$POSTGRES_PASSWORD" psql -q -h 127.0.0.1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -c "CREATE TABLE filled AS SELECT g AS id, md5(g::text) AS a, md5((-g)::text) AS b, random() AS r FROM generate_series(1, ${rows}) AS g"`,
    own: 'pg_dumpall',
    client: 'psql',
    dump: 'PGPASSWORD="$POSTGRES_PASSWORD" pg_dumpall -h 127.0.0.1 -U "$POSTGRES_USER"',
    restore: 'PGPASSWORD="$POSTGRES_PASSWORD" psql -q -h 127.0.0.1 -U "$POSTGRES_USER" -d template1',
  },
  mariadb: {
    fill: `MYSQL_PWD="$MARIADB_ROOT_PASSWORD" mariadb -u root "$MARIADB_DATABASE" -e "SET max_recursive_iterations = ${rows}; CREATE TABLE filled AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < ${rows}) SELECT id, md5(id) AS a, md5(-id) AS b, rand() AS r FROM n"`,
    own: 'mariadb-dump',
    client: 'mariadb',
    dump: 'MYSQL_PWD="$MARIADB_ROOT_PASSWORD" mariadb-dump -u root --single-transaction --quick --hex-blob --databases "$MARIADB_DATABASE"',
    restore: 'MYSQL_PWD="$MARIADB_ROOT_PASSWORD" mariadb -u root',
  },
  redis: {
    fill: `redis-cli eval "for i = 1, ${keys} do redis.call('set', 'key' .. i, redis.sha1hex(i) .. redis.sha1hex(-i)) end" 0`,
    own: 'redis-cli --rdb',
    client: 'debug reload',
    dump: 'redis-cli --rdb -',
    restore: 'cat >/data/dump.rdb && redis-cli debug reload nosave',
  },
  clickhouse: {
    fill: clickhouse(
      `CREATE TABLE filled ENGINE = MergeTree ORDER BY id AS SELECT number AS id, hex(MD5(toString(number))) AS a, hex(MD5(toString(number + 1))) AS b, rand() AS r FROM numbers(${rows})`,
    ),
    own: 'SELECT … FORMAT Native',
    client: 'INSERT … FORMAT Native',
    dump: clickhouse('SELECT * FROM filled FORMAT Native'),
    restore: `${clickhouse('CREATE TABLE filled (id UInt64, a String, b String, r UInt32) ENGINE = MergeTree ORDER BY id')} </dev/null && ${clickhouse('INSERT INTO filled FORMAT Native')}`,
  },
}

/**
 * Backups and restores of some 100 to 150 MB for each engine with a tool of its own; the tests' MongoDB has none. A dump of an
 * engine with two cores leaves none of a small machine for the platform, so two are measured with less, too.
 */
export const databaseCopies = (stack: Stack): Promise<Row[]> =>
  onWorker(stack, async (bench) => [
    ...(await copyRows(bench, 'postgresql', allCores)),
    ...(await copyRows(bench, 'mariadb', allCores)),
    ...(await copyRows(bench, 'redis', allCores)),
    ...(await copyRows(bench, 'clickhouse', allCores)),
    ...(await copyRows(bench, 'postgresql', 0.5)),
    ...(await copyRows(bench, 'mariadb', 0.5)),
  ])

/**
 * Throughputs in MB of the dump a second. A restore counts from the engine's first answer to its clean end, with what is
 * between: ours also counts the rows of all tables. Ours is its step without the start of the engine by hand.
 */
async function copyRows(bench: Bench, type: keyof typeof tools, cores: number): Promise<Row[]> {
  const { stack, path, shell } = bench
  const { fill, own, client, dump, restore } = tools[type]
  const fields = { name: `copied-${type}`, type, memory_mib: memoryMib, cpu_cores: cores }
  const { id } = await stack.finish('POST', `${path}/databases`, fields)
  const container = `$(docker ps -qf label=keelson.database=${id})`
  await shell(`docker exec ${container} sh -c ${quoted(fill)}`)
  const file = '/var/lib/machine/bench.zst'
  const took: Record<'dump' | 'bareDump' | 'restore' | 'bareRestore', number[]> = {
    dump: [],
    bareDump: [],
    restore: [],
    bareRestore: [],
  }
  for (let round = 0; round < rounds; round++) {
    const backup = await stepsOf(stack, 'POST', `${path}/databases/${id}/backup-executions`)
    const { body: copy } = await stack.request<{ dump_bytes: number }>(
      'GET',
      `${path}/backup-executions/${backup.id}`,
    )
    const speed = (seconds: number): number => copy.dump_bytes / 1e6 / seconds
    took.dump.push(speed(backup.seconds('copying the data out')))
    took.bareDump.push(
      speed(
        await secondsOf(
          shell,
          `docker exec ${container} sh -c ${quoted(dump)} | zstd -q -T1 -f -o ${file}; sync ${file}`,
        ),
      ),
    )
    const bare = await runBare(bench, type, memoryMib, cores)
    const restoring = `zstd -q -d -c ${file} | docker exec -i ${bare.name} sh -c ${quoted(restore)} >/dev/null; docker stop -t 120 ${bare.name}`
    took.bareRestore.push(speed(await secondsOf(shell, restoring)))
    await bare.remove()
    const restored = await stepsOf(stack, 'POST', `${path}/databases/${id}/restore`, {
      execution_id: backup.id,
    })
    took.restore.push(speed(restored.seconds('restoring the backup into a new volume') - bare.tookMs / 1000))
  }
  await shell(`rm -f ${file}`)
  await stack.finish('DELETE', `${path}/databases/${id}?delete_volumes=true`)
  const engine = cores === allCores ? type : `${type} with ${cores} cores`
  return [
    { what: `${engine}: dump of a backup`, unit: 'MB/s', figures: took.dump },
    { what: `${engine}: \`${own} | zstd >file\` in the worker`, unit: 'MB/s', figures: took.bareDump },
    { what: 'ratio', unit: '', figures: ratios(took.dump, took.bareDump), note: goal },
    { what: `${engine}: restore, counted, and its clean end`, unit: 'MB/s', figures: took.restore },
    {
      what: `${engine}: \`zstd -d | ${client}\` in the worker, and its clean end`,
      unit: 'MB/s',
      figures: took.bareRestore,
    },
    { what: 'ratio', unit: '', figures: ratios(took.restore, took.bareRestore), note: goal },
  ]
}

/** The seconds that a script takes in the worker, by its clock. */
const secondsOf = async (shell: Bench['shell'], script: string): Promise<number> =>
  Number(
    (await shell(`began=$(date +%s%N); ${script} >&2; echo $((($(date +%s%N) - began) / 1000))`))
      .split('\n')
      .at(-1),
  ) / 1e6

/** Carries out an operation. `seconds`: how long one of its steps was shown. */
async function stepsOf(stack: Stack, method: string, path: string, body?: object) {
  const accepted = await stack.request<{ id: string; detail?: string } | null>(method, path, body)
  if (accepted.status !== 202)
    throw new Error(`${method} ${path}: ${accepted.status} ${accepted.body?.detail}`)
  const location = String(accepted.headers['operation-location'])
  const began = new Map<string, number>()
  for (;;) {
    const { body: now } = await stack.request<{ state: string; step: string | null }>('GET', location)
    const key = isEnded(now) ? 'end' : (now.step ?? '')
    if (!began.has(key)) began.set(key, performance.now())
    if (!isEnded(now)) {
      await delay(lookEveryMs)
      continue
    }
    if (now.state !== 'succeeded') throw new Error(`${method} ${path}: ${JSON.stringify(now)}`)
    const times = [...began]
    return {
      id: accepted.body?.id ?? '', // a restore has no body
      seconds: (step: string): number => {
        const at = times.findIndex(([name]) => name === step)
        return ((times[at + 1]?.[1] ?? Number.NaN) - (times[at]?.[1] ?? Number.NaN)) / 1000
      },
    }
  }
}
