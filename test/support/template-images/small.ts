import { join } from 'node:path'
import { copiesOf, filesBelow, librariesOf } from '../base-images.ts'
import { folderAt, goProgram, inTools, list, ownFolder, program, script, standIn } from './stand-in.ts'

// Images that are made in seconds, of programs that start in seconds.

const packages = 'template-packages'
const nobody = 65_534

/** Prometheus of Debian, which is older than the template's. */
export const prometheus = standIn([`${packages}/usr/bin/prometheus`], async () => ({
  entries: [
    ...(await program(`${packages}/usr/bin/prometheus`, 'bin/prometheus', packages)),
    ...(await folderAt(`${packages}/usr/share/prometheus`, 'usr/share/prometheus')),
    ownFolder('prometheus', nobody),
  ],
  changes: [
    'USER nobody',
    'WORKDIR /prometheus',
    `ENTRYPOINT ${list('/bin/prometheus')}`,
    `CMD ${list('--config.file=/etc/prometheus/prometheus.yml', '--storage.tsdb.path=/prometheus')}`,
  ],
}))

/** Its entry point is that of the public image. */
export const nats = standIn(['nats/bin/nats-server'], async () => ({
  entries: [
    ...(await goProgram('nats/bin/nats-server', 'usr/local/bin/nats-server')),
    script(
      'usr/local/bin/docker-entrypoint.sh',
      'if [ "$#" -eq 0 ] || [ "${1#-}" != "$1" ]; then set -- nats-server "$@"; fi\nexec "$@"',
    ),
  ],
  changes: ['ENV PATH=/usr/local/bin:/usr/bin:/bin', `ENTRYPOINT ${list('docker-entrypoint.sh')}`],
}))

/** In the order in which PHP must load them. */
const extensions = 'mysqlnd pdo mysqli pdo_mysql pgsql pdo_pgsql sqlite3 pdo_sqlite'.split(' ')

/** Adminer and PHP of Debian, served as in the public image. */
export const adminer = standIn([`${packages}/usr/share/adminer/adminer.php`], async () => {
  const root = inTools(packages)
  const php = (await filesBelow(join(root, 'usr/bin'))).find((path) => /\/php[\d.]+$/.test(path)) ?? ''
  const loaded = (await filesBelow(join(root, 'usr/lib/php'))).filter((path) =>
    extensions.some((name) => path.endsWith(`/${name}.so`)),
  )
  return {
    entries: [
      ...(await copiesOf([php], () => 'usr/bin/php')),
      ...(await copiesOf(loaded, (path) => path.slice(root.length + 1))),
      ...(await librariesOf([php, ...loaded], root)),
      ...(await copiesOf([join(root, 'usr/share/adminer/adminer.php')], () => 'var/www/html/index.php')),
      {
        name: `etc/php/${php.replace(/.*php/, '')}/cli/conf.d/all.ini`,
        content: extensions.map((name) => `extension=${name}\n`).join(''),
      },
    ],
    changes: [
      'USER nobody',
      'WORKDIR /var/www/html',
      `CMD ${list('php', '-S', '[::]:8080', '-t', '/var/www/html')}`,
    ],
  }
})
