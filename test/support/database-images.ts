import { existsSync } from 'node:fs'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ArchiveEntry } from './archives.ts'
import { copiesOf, filesBelow, image, librariesOf, nodeOfThis } from './base-images.ts'
import { docker } from './containers.ts'
import type { Written } from './database-insides.ts'

// Stand-ins for the public images of databases: Debian's own engines, which script/bootstrap --tests has unpacked. They take
// the variables, the arguments and the paths of the public images, and carry the tags of the versions in the catalogue, but
// they are of Debian's version. Where they differ otherwise is said with each.

const tools = process.env['KEELSON_TOOLS'] ?? '.state/tools'
const root = join(tools, 'engines')
/** PostgreSQL of a newer Debian, with a C library of its own: script/bootstrap --tests unpacks it for pgvector. */
const newerRoot = join(tools, 'pgvector/tree')
const programsOfPostgresql = 'usr/lib/postgresql'
/** The machine has the engines. */
export const hasEngines = existsSync(root)
export const hasNewerPostgresql = existsSync(join(newerRoot, programsOfPostgresql))
const hasMergedUsr = existsSync(join(root, 'usr/bin/dash'))
/** Not every Debian has it. */
export const hasClickHouse = existsSync(join(root, 'usr/sbin/clickhouse-server'))
/** The types of databases of which an image can be made here. */
export const writtenTypes: Written[] = [
  'redis',
  'postgresql',
  'mariadb',
  'mongodb',
  ...(hasClickHouse ? (['clickhouse'] as const) : []),
]

const allBelow = async (folder: string, tree = root): Promise<string[]> =>
  (await readdir(join(tree, folder), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(tree.length + 1))

const fileAt = async (path: string, mode = 0o755, tree = root): Promise<ArchiveEntry> => ({
  name: path,
  mode,
  content: await readFile(join(tree, path)),
})

const folder = (name: string, uid = 0): ArchiveEntry => ({
  name,
  type: 'directory',
  mode: 0o700,
  uid,
  gid: uid,
})

/** These programs at their paths, with their libraries. */
async function programs(paths: string[], tree = root): Promise<ArchiveEntry[]> {
  const from = paths.map((path) => join(tree, path))
  const libraries = await librariesOf(from, tree)
  return [...(await Promise.all(paths.map((path) => fileAt(path, 0o755, tree)))), ...libraries]
}

/** The shell and the `awk` of the public images. Busybox's shell has an `awk` of its own, which takes ten times as long. */
async function shell(): Promise<ArchiveEntry[]> {
  const [dash, mawk] = [hasMergedUsr ? 'usr/bin/dash' : 'bin/dash', 'usr/bin/mawk']
  const paths = [dash, mawk].map((path) => join(root, path))
  const libraries = await librariesOf(paths, root)
  return [
    { ...(await fileAt(dash)), name: 'bin/sh' },
    { ...(await fileAt(mawk)), name: 'usr/bin/awk' },
    ...libraries,
  ]
}

const entrypoint = (script: string): ArchiveEntry => ({
  name: 'usr/local/bin/docker-entrypoint.sh',
  mode: 0o755,
  content: `#!/bin/sh\nset -e\n${script}`,
})

const starts = (path: string): string[] => [
  `ENV PATH=/usr/local/bin:${path}:/usr/sbin:/usr/bin:/bin`,
  'ENTRYPOINT ["docker-entrypoint.sh"]',
]

/** One image with several tags, so that changes of the version can be tested. */
async function tagged(
  repo: string,
  [first = '', ...others]: string[],
  entries: ArchiveEntry[],
  changes: string[],
  settings: object = {},
): Promise<void> {
  await image(repo, first, entries, changes, { settings })
  for (const tag of others) await docker.getImage(`${repo}:${first}`).tag({ repo, tag })
}

/** Where the program is that the image of a tag of PostgreSQL has: the newer one, if it is here, for 17 and above. */
const postgresqlTree = (tag: string): string =>
  hasNewerPostgresql && Number.parseInt(tag) >= 17 ? newerRoot : root

const majorIn = async (tree: string): Promise<string> =>
  (await readdir(join(tree, programsOfPostgresql)))[0] ?? ''

/** The major version of the PostgreSQL in the image of a tag. */
export const postgresqlMajorOf = (tag: string): Promise<string> => majorIn(postgresqlTree(tag))

async function postgresql(): Promise<void> {
  const trees = Map.groupBy(['16.10', '17.5', '17.6'], postgresqlTree)
  for (const [tree, tags] of trees) await makePostgresql(tree, tags)
}

/** Has no locales and no time zones but UTC. Begins as root and goes on as its user, as the public image does. */
async function makePostgresql(tree: string, tags: string[]): Promise<void> {
  const at = `${programsOfPostgresql}/${await majorIn(tree)}`
  const bin = `${at}/bin`
  const names = ['postgres', 'initdb', 'pg_isready', 'psql', 'pg_dump', 'pg_dumpall', 'pg_basebackup']
  const modules = (await allBelow(`${at}/lib`, tree)).filter((path) =>
    /\/(plpgsql|dict_snowball)\.so$/.test(path),
  )
  const share = (await allBelow(at.replace('/lib/', '/share/'), tree)).filter((path) => !/\/man\//.test(path))
  const script = `
[ "$1" = postgres ] || exec "$@"
if [ "$(id -u)" = 0 ]; then
  chown -R postgres "$PGDATA"
  quoted=
  for argument; do quoted="$quoted '$argument'"; done
  exec su -s /bin/sh postgres -c "exec docker-entrypoint.sh$quoted"
fi
if [ ! -e "$PGDATA/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" >/tmp/password
  initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth-host scram-sha-256 --auth-local trust --locale C --encoding UTF8
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE \\"$POSTGRES_DB\\"" | postgres --single -D "$PGDATA" postgres
fi
exec "$@" -c 'listen_addresses=*' -c unix_socket_directories=/tmp -c jit=off`
  const entries = [
    ...(await programs(
      names.map((name) => `${bin}/${name}`),
      tree,
    )),
    ...(await Promise.all([...modules, ...share].map((path) => fileAt(path, 0o644, tree)))),
    { name: 'etc/passwd', content: 'root:x:0:0::/:/bin/sh\npostgres:x:999:999::/:/bin/sh\n' },
    folder('var/lib/postgresql', 999),
    folder('var/lib/postgresql/data', 999),
    entrypoint(script),
  ]
  const changes = [...starts(`/${bin}`), 'ENV PGDATA=/var/lib/postgresql/data', 'CMD ["postgres"]']
  await tagged('keelson/test-postgresql', tags, entries, changes, { StopSignal: 'SIGINT' })
}

/** Has no time zones, plugins and `sys` schema, and runs as root. */
async function mariadb(): Promise<void> {
  const share = (await allBelow('usr/share/mysql')).filter((path) =>
    /mysql_(system_tables|system_tables_data|performance_tables)\.sql$|english\/|charsets\//.test(path),
  )
  const script = `
[ "$1" = mariadbd ] || exec "$@"
shift
if [ ! -d /var/lib/mysql/mysql ]; then
  { echo 'CREATE DATABASE mysql;'; echo 'USE mysql;'; cd /usr/share/mysql
    cat mysql_system_tables.sql mysql_performance_tables.sql mysql_system_tables_data.sql
    echo 'FLUSH PRIVILEGES;'
    echo "ALTER USER root@localhost IDENTIFIED BY '$MARIADB_ROOT_PASSWORD';"
    echo "DROP USER IF EXISTS root@'127.0.0.1';"
    echo "CREATE USER root@'%' IDENTIFIED BY '$MARIADB_ROOT_PASSWORD';"
    echo "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;"
    echo "CREATE DATABASE $MARIADB_DATABASE;"
    echo "CREATE USER '$MARIADB_USER'@'%' IDENTIFIED BY '$MARIADB_PASSWORD';"
    echo "GRANT ALL ON $MARIADB_DATABASE.* TO '$MARIADB_USER'@'%';"
  } | mariadbd --no-defaults --bootstrap --user=root --datadir=/var/lib/mysql --lc-messages-dir=/usr/share/mysql
fi
exec mariadbd --no-defaults --user=root --datadir=/var/lib/mysql --bind-address=0.0.0.0 --skip-name-resolve "$@"`
  const entries = [
    ...(await programs(['usr/sbin/mariadbd', 'usr/bin/mariadb', 'usr/bin/mariadb-dump'])),
    ...(await shell()),
    ...(await Promise.all(share.map((path) => fileAt(path, 0o644)))),
    { name: 'etc/passwd', content: 'root:x:0:0::/:/bin/sh\nmysql:x:999:999::/:/bin/sh\n' },
    folder('tmp'),
    folder('var/lib/mysql'),
    folder('run/mysqld'),
    entrypoint(script),
  ]
  const changes = [...starts('/usr/sbin'), 'CMD ["mariadbd"]']
  await tagged('keelson/test-mariadb', ['11.8.2', '11.8.3'], entries, changes)
}

/** Runs as root. */
async function redis(): Promise<void> {
  const entries = [
    ...(await programs(['usr/bin/redis-check-rdb', 'usr/bin/redis-cli'])),
    ...(await shell()),
    { name: 'usr/bin/redis-server', type: 'symlink' as const, linkname: 'redis-check-rdb' },
    folder('data'),
    entrypoint('exec "$@"'),
  ]
  const changes = [...starts('/usr/bin'), 'WORKDIR /data']
  await tagged('keelson/test-redis', ['7.4.5', '8.0.3', '8.2.1'], entries, changes)
}

/** What the driver of MongoDB consists of. */
const driver = [
  'mongodb',
  'bson',
  'mongodb-connection-string-url',
  'whatwg-url',
  'tr46',
  'punycode',
  'webidl-conversions',
  '@mongodb-js/saslprep',
  'sparse-bitfield',
  'memory-pager',
]

/** Has stand-ins for MongoDB's tools (mongo-tools.ts), and runs as root. */
async function mongodb(): Promise<void> {
  const mongod = join(tools, 'mongodb/bin/mongod')
  const modules = join(import.meta.dirname, '../../node_modules')
  const files = (await Promise.all(driver.map((name) => filesBelow(join(modules, name))))).flat()
  const script = `
if [ ! -e /data/db/WiredTiger ]; then
  # At another port: it ends before clients may count on it.
  mongod --fork --logpath /tmp/first.log --bind_ip 127.0.0.1 --port 27018 --dbpath /data/db --wiredTigerCacheSizeGB 0.25
  node -e "
    const { MongoClient } = require('/opt/driver/node_modules/mongodb')
    const { MONGO_INITDB_ROOT_USERNAME: user, MONGO_INITDB_ROOT_PASSWORD: pwd } = process.env
    const client = new MongoClient('mongodb://127.0.0.1:27018/', { serverSelectionTimeoutMS: 600_000 })
    client.db('admin').command({ createUser: user, pwd, roles: ['root'] }).then(() => process.exit(0))"
  mongod --shutdown --dbpath /data/db
fi
exec "$@" --auth --bind_ip_all --dbpath /data/db`
  const entries = [
    ...(await nodeOfThis()),
    ...(await copiesOf([mongod], () => 'usr/local/bin/mongod')),
    ...(await librariesOf([mongod])),
    ...(await shell()),
    ...(await copiesOf(files, (path) => `opt/driver/node_modules${path.slice(modules.length)}`)),
    ...(await copiesOf([join(import.meta.dirname, 'mongo-tools.ts')], () => 'opt/driver/mongo-tools.ts')),
    { name: 'opt/driver/package.json', mode: 0o644, content: '{"type":"module"}' },
    ...['mongosh', 'mongodump', 'mongorestore'].map((name) => ({
      name: `usr/local/bin/${name}`,
      mode: 0o755,
      content: `#!/bin/sh\nexec node --disable-warning=ExperimentalWarning /opt/driver/mongo-tools.ts ${name} "$@"\n`,
    })),
    folder('data/db'),
    entrypoint(script),
  ]
  const changes = [...starts('/usr/local/bin'), 'CMD ["mongod"]']
  await tagged('keelson/test-mongodb', ['8.0.10', '8.0.12'], entries, changes)
}

/** Of 2018, the only one that Debian has, and runs as root. It has no users by SQL, and creates no `Atomic` database. */
async function clickhouse(): Promise<void> {
  const script = `
data=/var/lib/clickhouse
if [ ! -e "$data/metadata" ]; then
  mkdir -p "$data/metadata/default" "$data/metadata/$CLICKHOUSE_DB"
  echo "ATTACH DATABASE $CLICKHOUSE_DB ENGINE = Ordinary" >"$data/metadata/$CLICKHOUSE_DB.sql"
fi
mkdir -p /etc/clickhouse-server
cat >/etc/clickhouse-server/config.xml <<END
<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <tcp_port>9000</tcp_port><http_port>8123</http_port><listen_host>0.0.0.0</listen_host>
  <path>$data/</path><tmp_path>/tmp/clickhouse/</tmp_path>
  <users_config>users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>5368709120</mark_cache_size><timezone>UTC</timezone>
  <query_log><database>system</database><table>query_log</table></query_log>
</yandex>
END
cat >/etc/clickhouse-server/users.xml <<END
<yandex>
  <profiles><default></default></profiles>
  <quotas><default></default></quotas>
  <users><$CLICKHOUSE_USER>
    <password>$CLICKHOUSE_PASSWORD</password><profile>default</profile><quota>default</quota>
    <networks><ip>::/0</ip></networks>
  </$CLICKHOUSE_USER></users>
</yandex>
END
exec clickhouse-server --config-file=/etc/clickhouse-server/config.xml "$@"`
  const utc = await readFile('/usr/share/zoneinfo/UTC')
  const entries = [
    ...(await programs(['usr/sbin/clickhouse-server', 'usr/bin/clickhouse-client'])),
    ...(await shell()),
    { name: 'etc/passwd', content: 'root:x:0:0::/:/bin/sh\n' },
    ...['etc/localtime', 'usr/share/zoneinfo/UTC'].map((name) => ({ name, content: utc })),
    folder('var/lib/clickhouse'),
    folder('tmp/clickhouse'),
    entrypoint(script),
  ]
  await tagged(
    'keelson/test-clickhouse',
    ['25.3.5.42', '25.3.6.56', '25.8.2.29'],
    entries,
    starts('/usr/sbin'),
  )
}

/** Puts a `psql` of Debian's engines into a folder, for a PATH. */
export async function putPsql(into: string): Promise<void> {
  const major = await majorIn(root)
  const libraries = ['usr/lib', 'lib'].map((path) => join(root, path, 'x86_64-linux-gnu')).join(':')
  const program = join(root, programsOfPostgresql, major, 'bin/psql')
  const script = `#!/bin/sh\nLD_LIBRARY_PATH=${libraries} exec ${program} "$@"\n`
  await writeFile(join(into, 'psql'), script, { mode: 0o755 })
}

const makers = { postgresql, mariadb, redis, mongodb, clickhouse }

/** Makes the images on this machine's engine. The host copies them into the worker of a database. */
export async function makeDatabaseImages(...types: (keyof typeof makers)[]): Promise<void> {
  for (const type of types) await makers[type]()
}
