import { z } from 'zod'
import { between, type Configuration, type DatabaseEngine, keys, size } from './engine.ts'

const sizes = 'kB|MB|GB'

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
  }),
  command: ({ memory_mib, configuration }) => {
    const settings: Configuration = { shared_buffers: `${Math.floor(memory_mib / 4)}MB`, ...configuration }
    const set = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${String(value)}`])
    return ['postgres', ...set]
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
}
