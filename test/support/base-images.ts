import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { type ArchiveEntry, tarOf } from './archives.ts'
import { docker } from './containers.ts'

// Stand-ins, on the host's engine, for the public images on which generated Dockerfiles build. The host copies them into
// the worker that builds.

/** Adds files to busybox. */
async function image(repo: string, tag: string, entries: ArchiveEntry[], changes: string[]): Promise<void> {
  const container = await docker.createContainer({ Image: 'busybox:latest', Cmd: ['true'] })
  await container.putArchive(await tarOf(entries), { path: '/' })
  await container.commit({ repo, tag, changes })
  await container.remove()
}

/** Serves files by the lines of the Caddyfile that generated Dockerfiles write. */
const caddy = `#!/bin/sh
exec httpd -f -p "$PORT" -h "$(sed -n 's/^root [*] //p' "$5")"
`

export const makeCaddy = (): Promise<void> =>
  image('keelson/test-caddy', '2', [{ name: 'usr/bin/caddy', mode: 0o755, content: caddy }], [])

const run = promisify(execFile)

const copiesOf = (paths: string[], nameOf = (path: string) => path.slice(1)): Promise<ArchiveEntry[]> =>
  Promise.all(paths.map(async (path) => ({ name: nameOf(path), mode: 0o755, content: await readFile(path) })))

/** The shared libraries of these programs, at their paths. */
async function librariesOf(...programs: string[]): Promise<ArchiveEntry[]> {
  const { stdout } = await run('ldd', programs)
  return copiesOf([...new Set([...stdout.matchAll(/(\/\S+) \(/g)].map(([, path = '']) => path))])
}

/** The Python of this machine with its standard library, at their paths. */
export async function makePython(): Promise<void> {
  const asked =
    'import os, sys, sysconfig; print(os.path.realpath(sys.executable), sysconfig.get_path("stdlib"))'
  const { stdout } = await run('python3', ['-c', asked])
  const [python = '', library = ''] = stdout.trim().split(' ')
  const isLeftOut = /\/(test|tests|site-packages|dist-packages|__pycache__|idlelib|config-[^/]*)\//
  const files = (await filesBelow(library)).filter((file) => !isLeftOut.test(file))
  const entries = [
    ...(await copiesOf([python])),
    ...(await librariesOf(python, ...files.filter((file) => file.endsWith('.so')))),
    ...(await copiesOf(files)),
    { name: 'usr/local/bin/python', type: 'symlink' as const, linkname: python },
  ]
  await image('keelson/test-python', '3', entries, ['ENV PATH=/usr/local/bin:/usr/bin:/bin'])
}

/** The Node that runs this, with its libraries. */
const nodeOfThis = async (): Promise<ArchiveEntry[]> => [
  { name: 'usr/local/bin/node', mode: 0o755, content: await readFile(process.execPath) },
  ...(await librariesOf(process.execPath)),
]

const filesBelow = async (folder: string): Promise<string[]> =>
  (await readdir(folder, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))

/** A target of load balancers (lb-backend.ts), started as `node /app/lb-backend.ts KEY CERT`. */
export async function makeBackend(): Promise<void> {
  const ws = join(import.meta.dirname, '../../node_modules/ws')
  const program = join(import.meta.dirname, 'lb-backend.ts')
  const entries = [
    ...(await nodeOfThis()),
    ...(await copiesOf([program], () => 'app/lb-backend.ts')),
    ...(await copiesOf(await filesBelow(ws), (path) => `app/node_modules/ws${path.slice(ws.length)}`)),
    { name: 'app/package.json', mode: 0o644, content: '{"type":"module"}' },
  ]
  await image('keelson/test-backend', '1', entries, ['ENV PATH=/usr/local/bin:/usr/bin:/bin'])
}

/** The Node that runs this, and its npm. */
export async function makeNode(): Promise<void> {
  const npm = join(dirname(process.execPath), '../lib/node_modules/npm')
  const files = (await filesBelow(npm)).filter((file) => !/\/(docs|man)\//.test(file))
  const entries = [
    ...(await nodeOfThis()),
    ...(await copiesOf(files, (path) => `usr/local/lib/node_modules/npm${path.slice(npm.length)}`)),
    {
      name: 'usr/local/bin/npm',
      type: 'symlink' as const,
      linkname: '../lib/node_modules/npm/bin/npm-cli.js',
    },
    { name: 'usr/bin/env', type: 'symlink' as const, linkname: '/bin/busybox' },
  ]
  await image('keelson/test-node', '24', entries, ['ENV PATH=/usr/local/bin:/usr/bin:/bin'])
}
