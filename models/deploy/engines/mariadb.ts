import { mariadbCopies } from './copies/mariadb.ts'
import {
  between,
  type DatabaseEngine,
  type DatabaseUsers,
  type EngineMetrics,
  keys,
  options,
  type PublicAccess,
  size,
} from './engine.ts'

/** The options that MariaDB and MySQL share. */
export const mysqlKeys = {
  max_connections: between(10, 5000),
  innodb_buffer_pool_size: size('K|M|G'),
  max_allowed_packet: size('K|M'),
  wait_timeout: between(1, 2_592_000),
  lock_wait_timeout: between(1, 2_592_000),
  innodb_lock_wait_timeout: between(1, 3600),
  long_query_time: between(0, 3600),
}

/** A row in a dump is a statement twice as long as its binary data, and the input may pause for minutes. */
export const mysqlFilling = () => ({ max_allowed_packet: '1G', wait_timeout: 28_800 })

const rights =
  'SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, TRIGGER, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, EVENT, CREATE TEMPORARY TABLES, LOCK TABLES'

/** `of`: the beginning of the image's variables. */
export function mysqlUsers(client: 'mariadb' | 'mysql', of: 'MARIADB' | 'MYSQL'): DatabaseUsers {
  const asRoot = `MYSQL_PWD="$${of}_ROOT_PASSWORD" ${client} -h 127.0.0.1 -u root`
  return {
    list: `${asRoot} -Ne "SELECT user FROM mysql.user"`,
    make: `${asRoot} <<END
CREATE USER IF NOT EXISTS '$ATTACHED_USER'@'%' IDENTIFIED BY '$ATTACHED_PASSWORD';
ALTER USER '$ATTACHED_USER'@'%' IDENTIFIED BY '$ATTACHED_PASSWORD';
GRANT ${rights} ON $${of}_DATABASE.* TO '$ATTACHED_USER'@'%';
END`,
    // A connection that has ended by itself meanwhile cannot be killed.
    remove: `${asRoot} -e "DROP USER IF EXISTS '$ATTACHED_USER'@'%'" &&
${asRoot} -Ne "SELECT id FROM information_schema.processlist WHERE user = '$ATTACHED_USER'" |
while read -r id; do ${asRoot} -e "KILL $id" || true; done`,
  }
}

/** As root, by the socket. `tablespaces`: the table that has InnoDB's files with their sizes. */
export const mysqlMetrics = (
  tablespaces: string,
  ...[client, of]: Parameters<typeof mysqlUsers>
): EngineMetrics => ({
  script: `MYSQL_PWD="$${of}_ROOT_PASSWORD" ${client} -u root -N <<'END' | {
SELECT 'data_bytes', SUM(FILE_SIZE) FROM information_schema.${tablespaces};
SHOW GLOBAL VARIABLES LIKE 'max_connections';
SHOW GLOBAL STATUS WHERE Variable_name IN
  ('Threads_connected', 'Questions', 'Slow_queries', 'Innodb_buffer_pool_read_requests', 'Innodb_buffer_pool_reads');
END
misses=
while read -r name value; do
  case $name in
  data_bytes) echo "metric $value data_bytes" ;;
  max_connections) echo "metric $value connections_max" ;;
  Threads_connected) echo "metric $((value - 1)) connections" ;;
  Questions) echo "metric $value queries" ;;
  Slow_queries) echo "metric $value slow_queries" ;;
  Innodb_buffer_pool_read_requests) requests=$value ;;
  Innodb_buffer_pool_reads) misses=$value ;; # a part of the requests
  esac
done
[ -n "$misses" ] || exit 1
echo "metric $((requests - misses)) cache_hits"
echo "metric $misses cache_misses"
}`,
  every_sec: 60,
  without: { keys: 'to count rows, all of them would be read' },
})

/** Of MySQL and MariaDB. */
export const mysqlOutside: PublicAccess = {
  tls: { user: 'mysql', options: (file) => [`--ssl-cert=${file}`, `--ssl-key=${file}`] },
  url: ({ user, password, database }, address) =>
    `mysql://${user}:${password}@${address}/${database}?ssl-mode=REQUIRED`,
}

export const mariadb: DatabaseEngine = {
  title: 'MariaDB',
  image: 'mariadb',
  versions: ['11.8.3', '11.8.2', '10.11.14', '10.11.13'],
  line: 2,
  port: 3306,
  data_path: '/var/lib/mysql',
  memory_mib: { least: 160, usual: 256 },
  stop_grace_sec: 120,
  healthy:
    'MYSQL_PWD="$MARIADB_PASSWORD" mariadb -h 127.0.0.1 -u "$MARIADB_USER" -e "SELECT 1" "$MARIADB_DATABASE"',
  env: ({ user, password, database, root_password }) => ({
    MARIADB_USER: user,
    MARIADB_PASSWORD: password,
    MARIADB_DATABASE: database,
    MARIADB_ROOT_PASSWORD: root_password,
  }),
  command: ({ memory_mib, configuration }) => [
    'mariadbd',
    ...options({ innodb_buffer_pool_size: `${Math.floor(memory_mib / 4)}M`, ...configuration }),
  ],
  configuration: keys(mysqlKeys),
  filling: mysqlFilling,
  url: ({ user, password, database }, address) => `mysql://${user}:${password}@${address}/${database}`,
  outside: mysqlOutside,
  copies: mariadbCopies,
  users: mysqlUsers('mariadb', 'MARIADB'),
  metrics: mysqlMetrics('INNODB_SYS_TABLESPACES', 'mariadb', 'MARIADB'),
}
