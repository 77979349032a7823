import { cp, mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { run } from '../../drivers/system/programs.ts'
import { guest } from './guest-files.ts'
import { pathOf } from './programs.ts'

// A guest of QEMU with two engines: one on XFS with project quotas, which this machine's kernel need not have, and one on
// ext4. Its kernel is that of microVMs and VMs, its programs are this machine's.

const modules =
  'virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk overlay libcrc32c xfs'
const programs =
  'awk bash busybox find ionice mount nice sh timeout xfs_io xfs_quota containerd containerd-shim-runc-v2 docker-init dockerd runc'
const packages = ['dockerode', 'p-queue', 'uuid', 'zod']
/** A guest that says nothing any more. */
const withinMs = 580_000

/** Runs test/support/xfs-guest/inside.ts in the guest, and returns the JSON that it prints. */
export async function runInXfsGuest(): Promise<unknown> {
  const folder = await mkdtemp(join(tmpdir(), 'xfs-guest-'))
  try {
    await Promise.all([makeInitramfs(folder), makeRoot(folder), makeData(folder)])
    const said = join(folder, 'said')
    const disk = (name: string): string => `file=${join(folder, name)},format=raw,if=virtio`
    const options = {
      machine: 'q35',
      accel: 'tcg,thread=multi', // only booting a guest would show whether KVM works
      cpu: 'max',
      smp: '2',
      m: '2G',
      serial: `file:${said}`,
      display: 'none',
      kernel: join(guest, 'vmlinuz'),
      initrd: join(folder, 'initramfs'),
      append: 'console=ttyS0 quiet panic=-1',
    }
    const args = Object.entries(options).flatMap(([name, value]) => [`-${name}`, value])
    args.push('-nodefaults', '-no-reboot', '-drive', disk('root'), '-drive', disk('data'))
    const ended = run('qemu-system-x86_64', args, { signal: AbortSignal.timeout(withinMs) })
    const failure = await ended.then(
      () => 'the guest ended without a result',
      (error: Error) => error.message,
    )
    const words = await readFile(said, 'utf8').catch(() => '')
    const [, told] = /^RESULT (.*)$/m.exec(words) ?? []
    if (told === undefined) throw new Error(`${failure}:\n${words.slice(-4000)}`)
    return JSON.parse(told)
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function makeInitramfs(folder: string): Promise<void> {
  const made = join(folder, 'initramfs.d')
  await mkdir(join(made, 'modules'), { recursive: true })
  const [busybox = ''] = await pathsOf('busybox')
  await cp(busybox, join(made, 'busybox'))
  for (const name of modules.split(' ')) {
    const found = (await run('find', [join(guest, 'modules'), '-name', `${name}.ko`])).trim()
    if (found) await cp(found, join(made, 'modules', `${name}.ko`)) // else it is in the kernel
  }
  const init = `#!/busybox sh
set -- ${modules}
/busybox mkdir -p /proc /sys /dev /root
/busybox mount -t devtmpfs dev /dev
for module; do [ -e /modules/$module.ko ] && /busybox insmod /modules/$module.ko; done
/busybox mount -t ext4 /dev/vda /root
/busybox mount -t devtmpfs dev /root/dev
exec /busybox switch_root /root /usr/bin/bash /inside
`
  await writeFile(join(made, 'init'), init, { mode: 0o755 })
  const pack = `cd "$1" && find . | cpio --quiet -o -H newc >"$2"`
  await run('sh', ['-c', pack, 'sh', made, join(folder, 'initramfs')])
}

const inside = `export PATH=/usr/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 group /sys/fs/cgroup
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t xfs -o pquota /dev/vdb /xfs
# An engine gives up waiting for a containerd of its own, which takes long on a busy machine.
containerd --log-level error &
until [ -S /run/containerd/containerd.sock ]; do sleep 1; done
engine() {
  dockerd --data-root "$1/docker" --exec-root "/run/$2" --pidfile "/run/$2.pid" --host "unix:///run/$2.sock" \\
    --containerd /run/containerd/containerd.sock --containerd-namespace "$2" --containerd-plugins-namespace "$2-plugins" \\
    --bridge=none --iptables=false --ip6tables=false --log-level=error &
}
engine /xfs held
engine /ext4 measured
node /work/test/support/xfs-guest/inside.ts
busybox poweroff -f
`

/** The guest's root: the programs with their libraries, the product's drivers, and an image's files. */
async function makeRoot(folder: string): Promise<void> {
  const root = join(folder, 'root.d')
  for (const name of [
    'usr/bin',
    'proc',
    'sys',
    'dev',
    'run',
    'tmp',
    'var/lib',
    'var/tmp',
    'etc',
    'xfs',
    'ext4',
    'work',
  ])
    await mkdir(join(root, name), { recursive: true })
  for (const name of ['bin', 'sbin', 'usr/sbin']) await symlink('/usr/bin', join(root, name))
  for (const name of programs.split(' ')) {
    const [program = '', ...libraries] = await pathsOf(name)
    await put(root, await realpath(program), `/usr/bin/${name}`)
    for (const library of libraries) await put(root, await realpath(library), library)
  }
  const node = await realpath(process.execPath)
  await put(root, node, '/usr/bin/node')
  for (const library of await librariesOf(node)) await put(root, await realpath(library), library)
  for (const name of (await run('busybox', ['--list'])).trim().split('\n'))
    await symlink('busybox', join(root, 'usr/bin', name)).catch(() => {}) // the program itself is there
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/tmp:/bin/sh\n')
  await writeFile(join(root, 'etc/group'), 'root:x:0:\n')
  await writeFile(join(root, 'inside'), inside)

  const ours = resolve(import.meta.dirname, '../..')
  for (const name of ['drivers', 'lib', 'package.json', 'test/support/xfs-guest'])
    await cp(join(ours, name), join(root, 'work', name), { recursive: true })
  for (const name of await withTheirs(ours, packages))
    await cp(join(ours, name), join(root, 'work', name), { recursive: true })
  await mkdir(join(root, 'image/bin'), { recursive: true })
  await cp(join(root, 'usr/bin/busybox'), join(root, 'image/bin/busybox'))
  for (const name of ['sh', 'dd', 'sleep']) await symlink('busybox', join(root, 'image/bin', name))
  await run('tar', ['-C', join(root, 'image'), '-cf', join(root, 'image.tar'), '.'])
  await run('truncate', ['--size', '1500M', join(folder, 'root')])
  await run('mkfs.ext4', ['-q', '-d', root, join(folder, 'root')])
}

async function makeData(folder: string): Promise<void> {
  await run('truncate', ['--size', '1G', join(folder, 'data')])
  await run('mkfs.xfs', ['-q', join(folder, 'data')])
}

async function put(root: string, from: string, to: string): Promise<void> {
  await mkdir(join(root, dirname(to)), { recursive: true })
  await cp(from, join(root, to))
}

/** A program and its libraries. */
async function pathsOf(name: string): Promise<string[]> {
  const path = await pathOf(name)
  return [path, ...(await librariesOf(path))]
}

const librariesOf = async (path: string): Promise<string[]> =>
  [...(await run('ldd', [path]).catch(() => '')).matchAll(/(?:=> |^\s+)(\/\S+) \(/gm)].flatMap(
    ([, library]) => library ?? [],
  )

/** The folders below node_modules of these packages and of all that they need. */
async function withTheirs(ours: string, names: string[]): Promise<Set<string>> {
  const lock = JSON.parse(await readFile(join(ours, 'package-lock.json'), 'utf8'))
  const known: Record<string, { dependencies?: Record<string, string> }> = lock.packages
  const all = new Set<string>()
  const add = (name: string, above: string): void => {
    const folder = `${above}node_modules/${name}`
    const { [folder]: found } = known
    if (!found && above) add(name, above.slice(0, above.lastIndexOf('node_modules/')))
    if (!found || all.has(folder)) return
    all.add(folder)
    for (const other of Object.keys(found.dependencies ?? {})) add(other, `${folder}/`)
  }
  for (const name of names) add(name, '')
  return all
}
