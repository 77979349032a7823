import { between, type DatabaseEngine, keys, options, size } from './engine.ts'

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
  url: ({ user, password, database }, address) => `mysql://${user}:${password}@${address}/${database}`,
}
