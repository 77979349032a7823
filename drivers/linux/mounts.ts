import { readdir, readFile, readlink } from 'node:fs/promises'
import { DiskInUse, EngineRefused, HostNotEquipped, InstanceNotFound } from '../errors.ts'
import { processIds, run, stderrOf, until } from '../system/programs.ts'

// Loop devices, and file systems mounted from them: on the host and in the mount namespaces of containers.

/** One line of /proc/<pid>/mountinfo. */
export interface Mount {
  /** `7:0`. */
  device: string
  path: string
  read_only: boolean
}

/** A mount inside a container, by one of the processes that see it. */
export interface InnerMount extends Mount {
  pid: number
}

export async function mountsOf(pid: number | 'self'): Promise<Mount[]> {
  const text = await readFile(`/proc/${pid}/mountinfo`, 'utf8').catch(() => '') // the process has ended
  return text
    .trimEnd()
    .split('\n')
    .filter(Boolean)
    .map((line) => {
      const [, , device = '', , path = '', options = ''] = line.split(' ')
      return { device, path: unescape(path), read_only: options.split(',').includes('ro') }
    })
}

/** The kernel writes blanks and the like as `\040`. */
const unescape = (path: string): string =>
  path.replaceAll(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))

/** Where a device is mounted in mount namespaces other than this process's. */
export async function innerMounts(device: string): Promise<InnerMount[]> {
  const seen = new Set([await namespaceOf('self')])
  const found: InnerMount[] = []
  for (const pid of await processIds()) {
    const namespace = await namespaceOf(pid)
    if (namespace === null || seen.has(namespace)) continue
    seen.add(namespace)
    for (const mount of await mountsOf(pid)) if (mount.device === device) found.push({ ...mount, pid })
  }
  return found
}

const namespaceOf = (pid: number | 'self'): Promise<string | null> =>
  readlink(`/proc/${pid}/ns/mnt`).catch(() => null)

export interface Loop {
  /** `/dev/loop0`. */
  path: string
  /** `7:0`. */
  device: string
  file: string
  /** Freed as soon as nobody has it open: somebody has detached it, and a process still uses its files. */
  leaving: boolean
}

/** The loop devices of files below a folder. */
export async function loopsBelow(folder: string): Promise<Loop[]> {
  const names = (await readdir('/sys/block')).filter((name) => name.startsWith('loop'))
  const found = await Promise.all(
    names.map(async (name) => {
      const read = async (file: string): Promise<string> =>
        (await readFile(`/sys/block/${name}/${file}`, 'utf8')).trimEnd()
      try {
        const [file, device, autoclear] = await Promise.all(
          ['loop/backing_file', 'dev', 'loop/autoclear'].map(read),
        )
        return { path: `/dev/${name}`, file, device, leaving: autoclear === '1' } as Loop
      } catch {
        return null // free, or freed meanwhile
      }
    }),
  )
  return found.filter((loop) => loop !== null && loop.file.startsWith(`${folder}/`)) as Loop[]
}

/** Not with --direct-io: it writes side by side, and QEMU 7.2 then mixes up what it is given through FUSE. */
export async function makeLoop(file: string): Promise<string> {
  return (await run('losetup', ['--find', '--show', file])).trim()
}

const freedWithinMs = 10_000

/** With `wait`, resolves when the device is free, or throws EngineUnavailable. */
export async function freeLoop(loop: Loop, wait: boolean): Promise<void> {
  try {
    await run('losetup', ['--detach', loop.path])
  } catch (error) {
    if (!/no such device/i.test(stderrOf(error))) throw error
  }
  const freed = async (): Promise<boolean> =>
    (
      await readFile(`/sys/block/${loop.path.slice('/dev/'.length)}/loop/backing_file`, 'utf8').catch(
        () => null,
      )
    )?.trimEnd() !== loop.file
  if (wait) await until(freed, freedWithinMs, 'A loop device of the disk is not freed')
}

/** Unmounts one thing; nothing there is success. Throws DiskInUse. `lazily`: who uses it keeps what he has open. */
export async function unmount({ path, pid }: { path: string; pid?: number }, lazily = false): Promise<void> {
  try {
    if (pid !== undefined) await perl(unmountIn, [String(pid), path, lazily ? '1' : ''])
    else await run('umount', [...(lazily ? ['--lazy'] : []), '--', path])
  } catch (error) {
    const words = stderrOf(error)
    if (/busy/i.test(words)) throw new DiskInUse(path, error)
    // The last: the container has ended, and its mounts with it.
    if (/not mounted|no mount point|no such file|invalid argument|^namespace:/i.test(words)) return
    throw error
  }
}

// Mount namespaces are entered here, before a path is looked at, so that a link in the container leads nowhere but
// into the container. mount(8) of 2.38 cannot bring a mount of the host into another namespace, as move_mount(2) can;
// umount(8) wants to see its own /proc there, and the state of a file system that may be dead.
const entering = `
sub call { my $what = shift; my $result = syscall($_[0], @_[1 .. $#_]); $result >= 0 or die "$what: $!\\n"; $result }
my ($setns, $umount, $pid) = map { $_ + 0 } splice(@ARGV, 0, 3);
open(my $namespace, '<', "/proc/$pid/ns/mnt") or die "namespace: $!\\n";
sub enter { call('setns', $setns, fileno($namespace), 0x20000) }
`
const mountIn = `${entering}
my ($target, $source, $readOnly) = @ARGV;
my ($cwd, $empty, $flags) = (-100, '', pack('Q4', 1, 0, 0, 0));
my $tree = call('open_tree', 428, $cwd, $source, 0x80001);
call('mount_setattr', 442, $tree, $empty, 0x1000, $flags, 32) if $readOnly;
enter();
my $folder = '';
for my $name (grep { length } split('/', $target)) {
  $folder .= "/$name";
  -d $folder or mkdir($folder, 0755) or die "mkdir: $!\\n";
}
call('move_mount', 429, $tree, $empty, $cwd, $target, 0x14);
`
const unmountIn = `${entering}
my ($target, $lazily) = @ARGV;
enter();
call('umount', $umount, $target, $lazily ? 10 : 8); # never through a link
`
// setns and umount2; the other calls have one number everywhere.
const callNumbers: Partial<Record<NodeJS.Architecture, string[]>> = {
  x64: ['308', '166'],
  arm64: ['268', '39'],
}

/** Runs a script with the pid of a container's process and more arguments. */
async function perl(script: string, args: string[]): Promise<void> {
  const numbers = callNumbers[process.arch]
  if (!numbers) throw new HostNotEquipped('a supported processor architecture for mounts in containers')
  await run('perl', ['-e', script, '--', ...numbers, ...args])
}

/** Shows what is mounted at `source` in a container too. Throws InstanceNotFound, EngineRefused. */
export async function mountInside(
  source: string,
  { pid, mount_path, read_only = false }: { pid: number; mount_path: string; read_only?: boolean },
): Promise<void> {
  try {
    await perl(mountIn, [String(pid), mount_path, source, read_only ? '1' : ''])
  } catch (error) {
    const words = stderrOf(error).trim()
    if (words.startsWith('namespace:')) throw new InstanceNotFound(String(pid), error)
    const [, reason] = /^(?:mkdir|move_mount): (.*)$/.exec(words) ?? []
    if (reason) throw new EngineRefused(`The disk cannot be mounted at ${mount_path}: ${reason}`, error)
    throw error
  }
}

/** Throws InstanceNotFound when it has ended, EngineRefused when it is no container: the host's own paths are not for this. */
export async function needsContainer(pid: number): Promise<void> {
  const namespace = await namespaceOf(pid)
  if (namespace === null) throw new InstanceNotFound(String(pid))
  if (namespace === (await namespaceOf('self')))
    throw new EngineRefused('The process has no mount namespace of its own')
}
