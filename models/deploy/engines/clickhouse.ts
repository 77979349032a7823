import { z } from 'zod'
import { clickhouseCopies } from './copies/clickhouse.ts'
import { between, type DatabaseEngine, type DatabaseUsers, keys, options } from './engine.ts'

const client = 'clickhouse-client --user "$CLICKHOUSE_USER" --password "$CLICKHOUSE_PASSWORD"'

const users: DatabaseUsers = {
  list: `${client} --query "SELECT name FROM system.users"`,
  make: `${client} --multiquery <<END
CREATE USER IF NOT EXISTS $ATTACHED_USER IDENTIFIED WITH sha256_password BY '$ATTACHED_PASSWORD';
ALTER USER $ATTACHED_USER IDENTIFIED WITH sha256_password BY '$ATTACHED_PASSWORD';
GRANT SELECT, INSERT, ALTER, CREATE TABLE, CREATE VIEW, DROP TABLE, DROP VIEW, TRUNCATE, OPTIMIZE, SHOW ON $CLICKHOUSE_DB.* TO $ATTACHED_USER;
END`,
  remove: `${client} --multiquery >/dev/null <<END
DROP USER IF EXISTS $ATTACHED_USER;
KILL QUERY WHERE user = '$ATTACHED_USER' SYNC;
END`,
}

export const clickhouse: DatabaseEngine = {
  title: 'ClickHouse',
  image: 'clickhouse/clickhouse-server',
  versions: ['25.8.2.29', '25.3.6.56', '25.3.5.42'],
  line: 2,
  // HTTP, which every client library speaks.
  port: 8123,
  data_path: '/var/lib/clickhouse',
  memory_mib: { least: 384, usual: 1024 },
  stop_grace_sec: 120,
  healthy:
    'clickhouse-client --user "$CLICKHOUSE_USER" --password "$CLICKHOUSE_PASSWORD" --database "$CLICKHOUSE_DB" --query "SELECT 1"',
  env: ({ user, password, database }) => ({
    CLICKHOUSE_USER: user,
    CLICKHOUSE_PASSWORD: password,
    CLICKHOUSE_DB: database,
    CLICKHOUSE_DEFAULT_ACCESS_MANAGEMENT: '1',
  }),
  // Behind `--` the server takes values of its configuration.
  command: ({ configuration }) =>
    Object.keys(configuration).length ? ['--', ...options(configuration)] : [],
  configuration: keys({
    max_connections: between(10, 10_000),
    max_concurrent_queries: between(1, 10_000),
    keep_alive_timeout: between(1, 3600),
    max_server_memory_usage_to_ram_ratio: z.number().min(0.1).max(0.95),
    mark_cache_size: between(1_048_576, 1_099_511_627_776),
  }),
  url: ({ user, password, database }, address) =>
    `http://${user}:${password}@${address}/?database=${database}`,
  users,
  copies: clickhouseCopies,
}
