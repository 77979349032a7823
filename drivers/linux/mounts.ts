import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { EngineRefused, HostNotEquipped, InstanceNotFound } from '../errors.ts'
import { DiskInUse } from '../disk-errors.ts'
import { numbersOfDevice } from './block-devices.ts'
import { processIds, run, stderrOf, until } from '../system/programs.ts'

// Loop devices and their mounted file systems, on the host and in containers' mount namespaces.

/** One line of /proc/<pid>/mountinfo. */
export interface Mount {
  /** Major and minor number, `7:0`. */
  device: string
  path: string
  read_only: boolean
}

/** A mount in a container; `pid` is one of the processes that see it. */
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

/** The file system of a path: its type, its own options, and where it is mounted. Null if the path is missing. */
export async function fileSystemOf(
  path: string,
): Promise<{ type: string; options: string[]; path: string } | null> {
  const found = await stat(path).catch(() => null)
  if (!found) return null
  const device = numbersOfDevice(found.dev)
  for (const line of (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')) {
    const [, , itsDevice, , mountPath = ''] = line.split(' ')
    const [type = '', , options = ''] = line.slice(line.indexOf(' - ') + 3).split(' ')
    const its = unescape(mountPath)
    const isAbove = its === '/' || path === its || path.startsWith(`${its}/`)
    if (itsDevice === device && isAbove) return { type, options: options.split(','), path: its }
  }
  return null
}

/** The kernel escapes blanks and some other characters as `\040`. */
const unescape = (path: string): string =>
  path.replaceAll(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))

/** Mounts of a device in mount namespaces other than this process's. */
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
  /** Detached while a process still uses its files: the kernel frees it when the last one closes. */
  leaving: boolean
}

/** The loop devices of files below a folder. */
export async function loopsBelow(folder: string): Promise<Loop[]> {
  const names = (await readdir('/sys/block')).filter((name) => name.startsWith('loop'))
  const found = await Promise.all(names.map(loopNamed))
  return found.filter((loop) => loop !== null && loop.file.startsWith(`${folder}/`)) as Loop[]
}

/** Null if the device is free, or was freed in the meantime. */
async function loopNamed(name: string): Promise<Loop | null> {
  const read = (file: string): Promise<string> => textOf(name, file)
  try {
    const [file = '', device = '', autoclear] = await Promise.all(
      ['loop/backing_file', 'dev', 'loop/autoclear'].map(read),
    )
    return { path: `/dev/${name}`, file, device, leaving: autoclear === '1' }
  } catch {
    return null
  }
}

const textOf = async (loop: string, file: string): Promise<string> =>
  (await readFile(`/sys/block/${loop}/${file}`, 'utf8')).trimEnd()

const nameOf = ({ path }: Pick<Loop, 'path'>): string => path.slice('/dev/'.length)

/**
 * The name and the number of a loop device, by which `loopNumbered` finds it when its file has no path any more. The
 * kernel gives a number once: the device has another one when it is used again. Null before Linux 5.15.
 */
export async function numberOf(loop: Pick<Loop, 'path'>): Promise<string | null> {
  const number = await textOf(nameOf(loop), 'diskseq').catch(() => null)
  return number && `${nameOf(loop)} ${number}`
}

export async function loopNumbered(text: string): Promise<Loop | null> {
  const [name = ''] = text.split(' ')
  if (!/^loop\d+$/.test(name) || (await numberOf({ path: `/dev/${name}` })) !== text) return null
  return loopNamed(name)
}

/** Makes a loop device. No --direct-io: its parallel writes make QEMU 7.2 mix up FUSE data. */
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
    (await textOf(nameOf(loop), 'loop/backing_file').catch(() => null)) !== loop.file
  if (wait) await until(freed, freedWithinMs, 'A loop device of the disk is not freed')
}

/** Unmounts a path; succeeds if nothing is mounted. Throws DiskInUse. `lazily`: processes keep their open files. */
export async function unmount({ path, pid }: { path: string; pid?: number }, lazily = false): Promise<void> {
  try {
    if (pid !== undefined) await perl(unmountIn, [String(pid), path, lazily ? '1' : ''])
    else await run('umount', [...(lazily ? ['--lazy'] : []), '--', path])
  } catch (error) {
    const words = stderrOf(error)
    if (/busy/i.test(words)) throw new DiskInUse(path, error)
    // The last pattern: the container has ended, and its mounts with it.
    if (/not mounted|no mount point|no such file|invalid argument|^namespace:/i.test(words)) return
    throw error
  }
}

// Enters the mount namespace before it resolves a path, so a symlink in the container cannot lead outside. mount(8)
// 2.38 cannot move a host mount into another namespace, unlike move_mount(2). umount(8) needs its own /proc there, and
// stats a file system that may be dead.
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
  next if mkdir($folder, 0755);
  my $why = $!;
  -d $folder or die "mkdir: $why\\n"; # another disk's mount may have made it
}
call('move_mount', 429, $tree, $empty, $cwd, $target, 0x14);
`
const unmountIn = `${entering}
my ($target, $lazily) = @ARGV;
enter();
call('umount', $umount, $target, $lazily ? 10 : 8); # never through a link
`
// Numbers of setns and umount2; the other calls have the same number everywhere.
const callNumbers: Partial<Record<NodeJS.Architecture, string[]>> = {
  x64: ['308', '166'],
  arm64: ['268', '39'],
}

/** Runs a script with the pid of a container's process and further arguments. */
async function perl(script: string, args: string[]): Promise<void> {
  const numbers = callNumbers[process.arch]
  if (!numbers) throw new HostNotEquipped('a supported processor architecture for mounts in containers')
  await run('perl', ['-e', script, '--', ...numbers, ...args])
}

/** Also mounts what is at `source` in a container. Throws InstanceNotFound, EngineRefused. */
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

/**
 * Throws InstanceNotFound if the process has ended, EngineRefused if it is not in a container: host paths must not be
 * mounted on.
 */
export async function needsContainer(pid: number): Promise<void> {
  const namespace = await namespaceOf(pid)
  if (namespace === null) throw new InstanceNotFound(String(pid))
  if (namespace === (await namespaceOf('self')))
    throw new EngineRefused('The process has no mount namespace of its own')
}
