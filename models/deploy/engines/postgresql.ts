import { z } from 'zod'
import { postgresqlArchive } from './archives/postgresql.ts'
import { postgresqlCopies } from './copies/postgresql.ts'
import {
  between,
  type Configuration,
  type DatabaseEngine,
  type DatabaseUsers,
  type EngineMetrics,
  keys,
  size,
} from './engine.ts'

const sizes = 'kB|MB|GB'

const connect = 'PGPASSWORD="$POSTGRES_PASSWORD" psql -qX -v ON_ERROR_STOP=1 -h 127.0.0.1 -U "$POSTGRES_USER"'
const psql = `${connect} -d "$POSTGRES_DB"`

/** Statements about a user, if there is one. */
const ifThere = (statements: string): string => String.raw`<<'END' >/dev/null
\getenv user ATTACHED_USER
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :'user') AS there \gset
\if :there
${statements}
\endif
END`

/** A user acts as the group of all: what one has made is the others' too, and stays. The log gets no password. */
const users: DatabaseUsers = {
  list: `${psql} -tAc "SELECT rolname FROM pg_roles"`,
  make: String.raw`${psql} <<'END'
\getenv user ATTACHED_USER
\getenv password ATTACHED_PASSWORD
\getenv owner POSTGRES_USER
SET log_statement = 'none'; SET log_min_duration_statement = -1; SET log_min_error_statement = 'panic';
SELECT 'CREATE ROLE keelson_attached' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keelson_attached') \gexec
SELECT format('CREATE ROLE %I', :'user') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'user') \gexec
ALTER ROLE :"user" LOGIN PASSWORD :'password';
GRANT keelson_attached TO :"user";
ALTER ROLE :"user" SET role TO keelson_attached;
GRANT USAGE, CREATE ON SCHEMA public TO keelson_attached;
GRANT SELECT, INSERT, UPDATE, DELETE, REFERENCES ON ALL TABLES IN SCHEMA public TO keelson_attached;
GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA public TO keelson_attached;
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE, REFERENCES ON TABLES TO keelson_attached;
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA public GRANT USAGE, SELECT, UPDATE ON SEQUENCES TO keelson_attached;
END`,
  // What it has in any database would keep it. It cannot log in meanwhile.
  remove: `set -e
${psql} ${ifThere(`ALTER ROLE :"user" NOLOGIN;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :'user';`)}
names=$(${psql} -tAc 'SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate')
printf '%s\\n' "$names" | while IFS= read -r name; do
  PGDATABASE=$name ${connect} ${ifThere(`REASSIGN OWNED BY :"user" TO keelson_attached;
DROP OWNED BY :"user";`)}
done
${psql} ${ifThere('DROP ROLE :"user";')}`,
}

/** What is asked here is not in the log, also if that has all statements. The sizes come last: a database may be dropped. */
const metrics: EngineMetrics = {
  script: `PGOPTIONS='-c log_statement=none -c log_min_duration_statement=-1' ${psql} -tA <<'END'
SELECT 'metric ' || count(*) || ' connections' FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();
SELECT 'metric ' || current_setting('max_connections') || ' connections_max';
SELECT 'metric ' || sum(xact_commit + xact_rollback) || ' queries' FROM pg_stat_database;
SELECT 'metric ' || sum(blks_hit) || ' cache_hits' FROM pg_stat_database;
SELECT 'metric ' || sum(blks_read) || ' cache_misses' FROM pg_stat_database;
SELECT 'metric ' || sum(pg_database_size(oid)) || ' data_bytes' FROM pg_database;
END`,
  every_sec: 60,
  without: {
    keys: 'to count rows, all of them would be read',
    slow_queries: 'it logs slow statements and does not count them',
  },
}

export const postgresql: DatabaseEngine = {
  title: 'PostgreSQL',
  image: 'postgres',
  versions: ['17.6', '17.5', '16.10', '16.9', '15.14'],
  line: 1,
  port: 5432,
  data_path: '/var/lib/postgresql/data',
  memory_mib: { least: 96, usual: 256 },
  stop_grace_sec: 120,
  // By TCP: while the image makes a new database, it listens only to its socket.
  healthy:
    'PGPASSWORD="$POSTGRES_PASSWORD" psql -h 127.0.0.1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -tAc "SELECT 1"',
  env: ({ user, password, database }) => ({
    POSTGRES_USER: user,
    POSTGRES_PASSWORD: password,
    POSTGRES_DB: database,
    PGSSLMODE: 'disable', // clients in the container
  }),
  command: ({ memory_mib, configuration }) => {
    const settings: Configuration = { shared_buffers: `${Math.floor(memory_mib / 4)}MB`, ...configuration }
    const set = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${String(value)}`])
    return ['postgres', ...set, ...postgresqlArchive.options]
  },
  configuration: keys({
    max_connections: between(10, 2000),
    shared_buffers: size(sizes),
    effective_cache_size: size(sizes),
    work_mem: size(sizes),
    maintenance_work_mem: size(sizes),
    max_wal_size: size('MB|GB'),
    random_page_cost: z.number().min(0.1).max(100),
    statement_timeout: between(0, 86_400_000),
    idle_in_transaction_session_timeout: between(0, 86_400_000),
    log_min_duration_statement: between(-1, 86_400_000),
    log_statement: z.enum(['none', 'ddl', 'mod', 'all']),
  }),
  url: ({ user, password, database }, address) => `postgresql://${user}:${password}@${address}/${database}`,
  outside: {
    tls: {
      user: 'postgres',
      options: (file) => ['-c', 'ssl=on', '-c', `ssl_cert_file=${file}`, '-c', `ssl_key_file=${file}`],
    },
    url: ({ user, password, database }, address) =>
      `postgresql://${user}:${password}@${address}/${database}?sslmode=require`,
  },
  copies: postgresqlCopies,
  archive: postgresqlArchive,
  users,
  metrics,
}
