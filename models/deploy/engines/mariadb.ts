import { mariadbCopies } from './copies/mariadb.ts'
import { between, type DatabaseEngine, type DatabaseUsers, keys, options, size } from './engine.ts'

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
  copies: mariadbCopies,
  users: mysqlUsers('mariadb', 'MARIADB'),
}
