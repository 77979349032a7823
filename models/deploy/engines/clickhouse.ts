import { z } from 'zod'
import { clickhouseCopies } from './copies/clickhouse.ts'
import {
  between,
  type DatabaseEngine,
  type DatabaseUsers,
  type EngineMetrics,
  keys,
  options,
} from './engine.ts'

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

/** Each is a query of its own: one that fails keeps none of the others back. */
const metrics: EngineMetrics = {
  script: `work=/tmp/keelson-metrics
rm -rf $work
mkdir -m 700 $work
trap 'exit 143' HUP INT TERM
trap 'rm -rf $work' EXIT
cat >$work/client.xml <<END
<config><host>127.0.0.1</host><user>$CLICKHOUSE_USER</user><password>$CLICKHOUSE_PASSWORD</password></config>
END
clickhouse-client --config-file=$work/client.xml --multiquery --ignore-error 2>/dev/null <<'END'
SELECT concat('metric ', toString(value), ' connections_max') FROM system.server_settings WHERE name = 'max_connections';
SELECT concat('metric ', toString(toInt64(sum(value)) - 1), ' connections') FROM system.metrics
  WHERE metric IN ('TCPConnection', 'HTTPConnection', 'MySQLConnection', 'PostgreSQLConnection');
SELECT concat('metric ', toString(sum(bytes_on_disk)), ' data_bytes') FROM system.parts;
SELECT concat('metric ', toString(sum(value)), ' queries') FROM system.events WHERE event = 'Query';
SELECT concat('metric ', toString(sum(value)), ' cache_hits') FROM system.events WHERE event = 'MarkCacheHits';
SELECT concat('metric ', toString(sum(value)), ' cache_misses') FROM system.events WHERE event = 'MarkCacheMisses';
END`,
  every_sec: 300,
  without: {
    keys: 'it counts rows by table alone',
    slow_queries: 'they are found by reading its log of all queries',
  },
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
  outside: {
    tls: 'load_balancer',
    url: ({ user, password, database }, address) =>
      `https://${user}:${password}@${address}/?database=${database}`,
  },
  users,
  copies: clickhouseCopies,
  metrics,
}
