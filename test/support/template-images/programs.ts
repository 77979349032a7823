import { execFile } from 'node:child_process'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import type { ArchiveEntry } from '../archives.ts'
import { authorities, filesBelow, librariesOf, nodeOfThis, pythonOfThis } from '../base-images.ts'
import { folderAt, goProgram, inTools, list, ownFolder, program, script, standIn } from './stand-in.ts'

// Images of programs that take minutes to build: for the long form.

const nobody = 65_534
const path = 'ENV PATH=/usr/local/bin:/usr/bin:/bin'
const packages = 'template-packages'

/** With the entry point of the public image, which takes arguments of the program. */
export const versitygw = standIn(['versitygw/bin/versitygw'], async () => ({
  entries: await goProgram('versitygw/bin/versitygw', 'usr/local/bin/versitygw'),
  changes: [`ENTRYPOINT ${list('/usr/local/bin/versitygw')}`],
}))

export const miniflux = standIn(['miniflux/bin/miniflux.app'], async () => ({
  entries: await goProgram('miniflux/bin/miniflux.app', 'usr/bin/miniflux'),
  changes: ['ENV LISTEN_ADDR=0.0.0.0:8080', `USER ${nobody}`, `CMD ${list('/usr/bin/miniflux')}`],
}))

const serves = '--http=0.0.0.0:8090 --dir=/pb_data --publicDir=/pb_public --hooksDir=/pb_hooks'

export const pocketbase = standIn(['pocketbase/bin/base'], async () => ({
  entries: await goProgram('pocketbase/bin/base', 'usr/local/bin/pocketbase'),
  changes: [`ENTRYPOINT ${list('/usr/local/bin/pocketbase', 'serve', ...serves.split(' '))}`],
}))

/** Its Go module has no pages, which the public image has. */
export const memos = standIn(['memos/bin/memos'], async () => ({
  entries: [...(await goProgram('memos/bin/memos', 'usr/local/memos/memos')), ownFolder('var/opt/memos', 0)],
  changes: [
    'ENV MEMOS_MODE=prod MEMOS_PORT=5230',
    'WORKDIR /usr/local/memos',
    `ENTRYPOINT ${list('./memos')}`,
  ],
}))

export const weaviate = standIn(['weaviate/bin/weaviate-server'], async () => ({
  entries: [...(await goProgram('weaviate/bin/weaviate-server', 'bin/weaviate')), ownFolder('modules', 0)],
  changes: [
    `ENTRYPOINT ${list('/bin/weaviate')}`,
    `CMD ${list('--host', '0.0.0.0', '--port', '8080', '--scheme', 'http')}`,
  ],
}))

const nodeUser = 1000

export const nodeRed = standIn(['node-red/node_modules/node-red'], async () => ({
  entries: [
    ...(await nodeOfThis()),
    ...(await folderAt('node-red/node_modules', 'usr/src/node-red/node_modules')),
    {
      name: 'etc/passwd',
      content: `root:x:0:0::/root:/bin/sh\nnode-red:x:${nodeUser}:${nodeUser}::/data:/bin/sh\n`,
    },
    ownFolder('data', nodeUser),
    script('usr/src/node-red/entrypoint.sh', 'exec node node_modules/node-red/red.js --userDir /data "$@"'),
  ],
  changes: [
    `${path} NODE_PATH=/usr/src/node-red/node_modules:/data/node_modules HOME=/data`,
    'WORKDIR /usr/src/node-red',
    'USER node-red',
    `ENTRYPOINT ${list('./entrypoint.sh')}`,
  ],
}))

const actualServer = 'node_modules/@actual-app/sync-server'

export const actual = standIn([`actual/${actualServer}`], async () => ({
  entries: [
    ...(await nodeOfThis()),
    ...(await folderAt('actual/node_modules', 'app/node_modules')),
    ownFolder('data', 0),
  ],
  changes: [path, 'WORKDIR /app', `CMD ${list('node', `${actualServer}/build/app.js`)}`],
}))

/** On the Python of this machine. */
export const marimo = standIn(['marimo/marimo'], async () => ({
  entries: [
    ...(await pythonOfThis()),
    ...(await folderAt('marimo', 'opt/marimo')),
    ...(await librariesOf((await filesBelow(inTools('marimo'))).filter((file) => file.endsWith('.so')))),
    script('usr/local/bin/marimo', 'exec python -m marimo "$@"'),
  ],
  changes: [`${path} PYTHONPATH=/opt/marimo HOME=/root`],
}))

const git = 1000

/** With the files of its public image, of which the service of OpenSSH is left out. It has no scripts and styles for browsers. */
export const gitea = standIn(['gitea/image', `${packages}/usr/bin/s6-svscan`], async () => {
  const programs = 'bin/bash usr/bin/curl usr/bin/envsubst usr/bin/git usr/bin/s6-svscan usr/bin/s6-supervise'
  const unpacked = programs.split(' ').map((name) => program(`${packages}/${name}`, name, packages))
  const files = await folderAt('gitea/image', '')
  return {
    entries: [
      ...(await Promise.all(unpacked)).flat(),
      ...(await goProgram(`${packages}/usr/sbin/gosu`, 'usr/bin/su-exec')),
      ...(await program('gitea/bin/gitea', 'app/gitea/gitea')),
      ...(await folderAt('gitea/static', 'app/gitea/static')),
      ...files.filter(({ name }) => !name.startsWith('etc/s6/openssh/')),
      { name: 'usr/bin/env', type: 'symlink', linkname: '/bin/busybox' },
      ...['upload-pack', 'receive-pack', 'upload-archive'].map((name) => ({
        name: `usr/bin/git-${name}`,
        type: 'symlink' as const,
        linkname: 'git',
      })),
      {
        name: 'etc/passwd',
        content: `root:x:0:0::/root:/bin/sh\ngit:x:${git}:${git}::/data/git:/bin/bash\n`,
      },
      { name: 'etc/group', content: `root:x:0:\ngit:x:${git}:\n` },
      ownFolder('data', 0),
    ],
    changes: [
      `${path}:/usr/sbin USER=git GITEA_CUSTOM=/data/gitea GITEA__server__STATIC_ROOT_PATH=/app/gitea/static`,
      `ENTRYPOINT ${list('/usr/bin/entrypoint')}`,
      `CMD ${list('/usr/bin/s6-svscan', '/etc/s6')}`,
    ],
  }
})

const java = 'template-java'
const keycloakUser = 1000

/** What Java trusts: an empty store, because this program calls nobody. It does not start without one. */
async function trusts(): Promise<ArchiveEntry> {
  const make = ['pkcs12', '-export', '-nokeys', '-in', authorities, '-passout', 'pass:changeit']
  const { stdout } = await promisify(execFile)('openssl', make, { encoding: 'buffer' })
  return { name: 'etc/ssl/certs/java/cacerts', mode: 0o644, content: stdout }
}

/** On Java 17 of Debian; the public image has 21. */
export const keycloak = standIn(['keycloak/bin/kc.sh', `${java}/usr/lib/jvm`], async () => {
  const jvm = 'usr/lib/jvm/java-17-openjdk-amd64'
  const parts = (await filesBelow(inTools(`${java}/${jvm}/lib`))).filter((file) => file.endsWith('.so'))
  return {
    entries: [
      ...(await program(`${packages}/bin/bash`, 'bin/bash', packages)),
      ...(await librariesOf([inTools(`${java}/${jvm}/bin/java`), ...parts], inTools(java))),
      ...(await folderAt(`${java}/usr/lib/jvm`, 'usr/lib/jvm')),
      ...(await folderAt(`${java}/etc/java-17-openjdk`, 'etc/java-17-openjdk')),
      await trusts(),
      ...writable(await folderAt('keycloak', 'opt/keycloak'), keycloakUser),
      {
        name: 'etc/passwd',
        content: `root:x:0:0::/root:/bin/sh\nkeycloak:x:${keycloakUser}:0::/opt/keycloak:/bin/sh\n`,
      },
    ],
    changes: [
      `${path} JAVA_HOME=/${jvm} LANG=C.UTF-8`,
      'USER keycloak',
      `ENTRYPOINT ${list('/opt/keycloak/bin/kc.sh')}`,
    ],
  }
})

/** These files and their folders, of this user: the program writes beside them. */
function writable(files: ArchiveEntry[], uid: number): ArchiveEntry[] {
  const folders = new Set(files.map(({ name }) => dirname(name)))
  return [
    ...[...folders].map((name) => ownFolder(name, uid)),
    ...files.map((file) => ({ ...file, uid, gid: uid })),
  ]
}
