import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { type ArchiveEntry, tarOf } from './archives.ts'
import { docker } from './containers.ts'

// Stand-ins, on the host's engine, for the public images on which generated Dockerfiles build. The host copies them into
// the worker that builds.

/** Adds files to busybox, or to another image. `settings`: of the image, which are no changes of a commit. */
export async function image(
  repo: string,
  tag: string,
  entries: ArchiveEntry[],
  changes: string[],
  { base = 'busybox:latest', settings = {} }: { base?: string; settings?: object } = {},
): Promise<void> {
  const container = await docker.createContainer({ Image: base, Cmd: ['true'], ...settings })
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

export const copiesOf = (
  paths: string[],
  nameOf = (path: string) => path.slice(1),
): Promise<ArchiveEntry[]> =>
  Promise.all(paths.map(async (path) => ({ name: nameOf(path), mode: 0o755, content: await readFile(path) })))

const loader = 'ld-linux-x86-64.so.2'

/**
 * The shared libraries of these programs, at their paths; those below `root`, if there, instead of the system's. A root with
 * a C library of its own has all of them.
 */
export async function librariesOf(programs: string[], root = ''): Promise<ArchiveEntry[]> {
  const own = join(root, 'usr/lib/x86_64-linux-gnu')
  if (root && existsSync(join(own, loader))) return librariesBeside(own, programs, root)
  const env = root
    ? {
        ...process.env,
        LD_LIBRARY_PATH: ['usr/lib', 'lib'].map((path) => join(root, path, 'x86_64-linux-gnu')).join(':'),
      }
    : process.env
  const { stdout } = await run('ldd', programs, { env })
  const paths = new Set([...stdout.matchAll(/(\/\S+) \(/g)].map(([, path = '']) => path))
  return copiesOf([...paths], (path) =>
    (path.startsWith(`${root}/`) ? path.slice(root.length) : path).slice(1),
  )
}

/** The shared libraries in a folder that has the loader, too, and is the only one in which it looks. */
async function librariesBeside(folder: string, programs: string[], root: string): Promise<ArchiveEntry[]> {
  const asked = programs.map((program) =>
    run(join(folder, loader), ['--library-path', folder, '--list', program]),
  )
  const said = (await Promise.all(asked)).map(({ stdout }) => stdout).join('')
  const paths = new Set([...said.matchAll(/=> (\/\S+) \(/g)].map(([, path = '']) => path))
  return [
    ...(await copiesOf([...paths], (path) => path.slice(root.length + 1))),
    ...(await copiesOf([join(folder, loader)], () => `lib64/${loader}`)),
  ]
}

/** The Python of this machine with its standard library, at their paths. */
export async function pythonOfThis(): Promise<ArchiveEntry[]> {
  const asked =
    'import os, sys, sysconfig; print(os.path.realpath(sys.executable), sysconfig.get_path("stdlib"))'
  const { stdout } = await run('python3', ['-c', asked])
  const [python = '', library = ''] = stdout.trim().split(' ')
  const isLeftOut = /\/(test|tests|site-packages|dist-packages|__pycache__|idlelib|config-[^/]*)\//
  const files = (await filesBelow(library)).filter((file) => !isLeftOut.test(file))
  return [
    ...(await copiesOf([python])),
    ...(await librariesOf([python, ...files.filter((file) => file.endsWith('.so'))])),
    ...(await copiesOf(files)),
    { name: 'usr/local/bin/python', type: 'symlink', linkname: python },
  ]
}

export const makePython = async (): Promise<void> =>
  image('keelson/test-python', '3', await pythonOfThis(), ['ENV PATH=/usr/local/bin:/usr/bin:/bin'])

/** The Node that runs this, with its libraries. */
export const nodeOfThis = async (): Promise<ArchiveEntry[]> => [
  { name: 'usr/local/bin/node', mode: 0o755, content: await readFile(process.execPath) },
  ...(await librariesOf([process.execPath])),
]

const filesAt = async (path: string): Promise<string[]> =>
  (await stat(path)).isDirectory() ? filesBelow(path) : [path]

export const filesBelow = async (folder: string): Promise<string[]> =>
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

/**
 * On which the Dockerfiles of Nixpacks build: its own image has a Nix that downloads what they ask for. This one has Node
 * already, and its `nix-env` installs nothing.
 */
export async function makeNixBase(): Promise<void> {
  await makeNode()
  const nothing = { mode: 0o755, content: '#!/bin/sh\necho "nothing is installed: $0 $*"\n' }
  const entries = [
    ...(await copiesOf(['/bin/bash'])),
    ...(await librariesOf(['/bin/bash'])),
    { name: 'usr/local/bin/nix-env', ...nothing },
    { name: 'usr/local/bin/nix-collect-garbage', ...nothing },
  ]
  await image('keelson/test-nix', '1', entries, [], { base: 'keelson/test-node:24' })
}

/** An operator's image of Nixpacks: this program, with its libraries. */
export async function makeNixpacksImage(program: string): Promise<void> {
  const entries = [
    ...(await copiesOf([program], () => 'usr/local/bin/nixpacks')),
    ...(await librariesOf([program])),
  ]
  await image('keelson/test-nixpacks', '1', entries, ['ENV PATH=/usr/local/bin:/usr/bin:/bin'])
}

/** The Go on the PATH, without cgo and its own sources. */
export async function makeGo(): Promise<void> {
  const { stdout } = await run('go', ['env', 'GOROOT'])
  const root = stdout.trim()
  const isLeftOut = /\/testdata\/|_test\.go$|^\/src\/cmd\//
  const files = ['src', 'pkg/include', 'pkg/tool', 'bin/go', 'VERSION', 'go.env']
  const paths = (await Promise.all(files.map((file) => filesAt(join(root, file))))).flat()
  const wanted = paths.filter((path) => !isLeftOut.test(path.slice(root.length)))
  const entries = [
    ...(await copiesOf(wanted, (path) => `usr/local/go${path.slice(root.length)}`)),
    // Generated Dockerfiles copy it to where the program runs.
    { name: 'etc/ssl/certs/ca-certificates.crt', content: await readFile(authorities) },
  ]
  await image('keelson/test-go', '1', entries, [
    'ENV PATH=/usr/local/go/bin:/usr/bin:/bin HOME=/root GOTOOLCHAIN=local',
  ])
}

export const authorities = '/etc/ssl/certs/ca-certificates.crt'

/**
 * FrankenPHP is in no package of Debian's. This has the one command of its that generated Dockerfiles use, in the form
 * `frankenphp php-server --listen :PORT --root FOLDER`, and serves by PHP's own server for developers: like it, index.php
 * answers for paths without a file.
 */
const frankenphp = `#!/bin/sh
[ "$1 $2 $4" = "php-server --listen --root" ] || { echo "frankenphp: not in the stand-in: $*" >&2; exit 64; }
exec php -S "0.0.0.0$3" -t "$5"
`

/** Debian's PHP and Composer, in one image for both settings. */
export async function makePhp(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'php-'))
  const tree = join(folder, 'rootfs.tar')
  await run('mmdebstrap', [
    '--quiet',
    '--variant=essential',
    '--include=php-cli,composer',
    '--aptopt=APT::Install-Recommends "false"',
    ...['man', 'doc', 'locale'].map((name) => `--dpkgopt=path-exclude=/usr/share/${name}/*`),
    '--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin',
    'bookworm',
    tree,
    await debianMirror(),
  ])
  await text(await docker.importImage(tree, { repo: 'keelson/test-php-base', tag: '8' }))
  await rm(folder, { recursive: true })
  await image(
    'keelson/test-php',
    '8',
    [{ name: 'usr/local/bin/frankenphp', mode: 0o755, content: frankenphp }],
    ['ENV PATH=/usr/local/bin:/usr/bin:/bin COMPOSER_ALLOW_SUPERUSER=1 COMPOSER_HOME=/tmp'],
    { base: 'keelson/test-php-base:8' },
  )
}

/** Debian's mirror in this machine's package sources. */
async function debianMirror(): Promise<string> {
  const { stdout } = await run('apt-get', ['indextargets', '--format', '$(LABEL) $(REPO_URI)'])
  return /^Debian (\S+)$/m.exec(stdout)?.[1] ?? ''
}
