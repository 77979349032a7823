import { mysqlCopies } from './copies/mariadb.ts'
import { type DatabaseEngine, keys, options } from './engine.ts'
import { mysqlFilling, mysqlKeys, mysqlMetrics, mysqlOutside, mysqlUsers } from './mariadb.ts'

export const mysql: DatabaseEngine = {
  title: 'MySQL',
  image: 'mysql',
  versions: ['8.4.6', '8.4.5', '8.0.43'],
  line: 2,
  port: 3306,
  data_path: '/var/lib/mysql',
  memory_mib: { least: 512, usual: 768 },
  stop_grace_sec: 120,
  healthy: 'MYSQL_PWD="$MYSQL_PASSWORD" mysql -h 127.0.0.1 -u "$MYSQL_USER" -e "SELECT 1" "$MYSQL_DATABASE"',
  env: ({ user, password, database, root_password }) => ({
    MYSQL_USER: user,
    MYSQL_PASSWORD: password,
    MYSQL_DATABASE: database,
    MYSQL_ROOT_PASSWORD: root_password,
  }),
  command: ({ memory_mib, configuration }) => [
    'mysqld',
    ...options({ innodb_buffer_pool_size: `${Math.floor(memory_mib / 4)}M`, ...configuration }),
  ],
  configuration: keys(mysqlKeys),
  filling: mysqlFilling,
  url: ({ user, password, database }, address) => `mysql://${user}:${password}@${address}/${database}`,
  outside: mysqlOutside,
  copies: mysqlCopies,
  users: mysqlUsers('mysql', 'MYSQL'),
  metrics: mysqlMetrics('INNODB_TABLESPACES', 'mysql', 'MYSQL'),
}
