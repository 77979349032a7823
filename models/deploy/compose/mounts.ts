import { posix } from 'node:path'
import { faultOfSource } from './keys.ts'
import type { PlannedContainer } from './plan.ts'
import type { Reading } from './reading.ts'
import type { Path } from './text.ts'
import { mebibytesOf } from './values.ts'

// What a container mounts: volumes, folders in memory, and files with the contents of configs.

type Mounts = Pick<PlannedContainer, 'volumes' | 'tmpfs' | 'files'>

/** Adds a fault unless something can be mounted at this path. */
type Claim = (path: string, at: Path) => boolean

export function mountsOf(reading: Reading): Mounts {
  const claim = makeClaim(reading)
  const { volumes, tmpfs } = volumesOf(reading, claim)
  return {
    volumes,
    tmpfs: [...tmpfsOf(reading, claim), ...sharedMemoryOf(reading, claim), ...tmpfs],
    files: filesOf(reading, claim),
  }
}

/** The paths at which a container mounts something. */
export const pathsOf = ({ volumes, tmpfs, files }: Mounts): ReadonlySet<string> =>
  new Set([...volumes, ...tmpfs, ...files].map(({ mount_path }) => plainPath(mount_path)))

/** `/data//x/` → `/data/x` */
const plainPath = (path: string): string => posix.normalize(path).replace(/(?<=.)\/$/, '')

/** The Swarm refuses a service that mounts two things at one path. */
function makeClaim({ name, around, fault }: Reading): Claim {
  const storages = new Set(around.storages.get(name))
  const taken = new Set<string>()
  return (path, at) => {
    const plain = plainPath(path)
    const wrong = storages.has(plain)
      ? `a storage of the service is mounted at ${plain}`
      : taken.has(plain)
        ? `something else is mounted at ${plain}`
        : faultOfPath(path, plain)
    taken.add(plain)
    if (wrong !== null) fault(at, wrong)
    return wrong === null
  }
}

function faultOfPath(path: string, plain: string): string | null {
  if (!/^\/[^\0]+$/.test(path) || plain === '/' || path.split('/').includes('..'))
    return 'must be mounted at an absolute path, not at / itself'
  return path.includes('{{') ? 'must not have {{ in its path' : null // a template of the Swarm
}

interface LongVolume {
  type?: string
  source?: string
  target?: string
  read_only?: boolean
  bind?: object
  volume?: { nocopy?: boolean }
  tmpfs?: { size?: number | string }
  /** Of the short form. */
  options?: string[]
}

/** On this platform they mean nothing, or what is so anyway. */
const plainOptions = new Set(['rw', 'ro', 'z', 'Z', 'cached', 'delegated', 'consistent'])

function volumesOf({ keys, around, fault }: Reading, claim: Claim): Pick<Mounts, 'volumes' | 'tmpfs'> {
  const mounts: Pick<Mounts, 'volumes' | 'tmpfs'> = { volumes: [], tmpfs: [] }
  const given = (keys['volumes'] ?? []) as (string | LongVolume)[]
  for (const [index, one] of given.entries()) {
    const at: Path = ['volumes', index]
    const long = longVolume(one)
    const { type = 'volume', source, target = '', read_only = false, tmpfs } = long
    const wrong = faultOfVolume(long, around.volumes)
    if (wrong !== null) fault(at, wrong)
    else if (!claim(target, at)) continue
    else if (type === 'volume') mounts.volumes.push({ volume: source ?? '', mount_path: target, read_only })
    else mounts.tmpfs.push({ mount_path: target, size_mib: sizeOf(tmpfs?.size, at, fault) })
  }
  return mounts
}

function faultOfVolume(
  { type = 'volume', source, read_only, bind, volume, options = [] }: LongVolume,
  volumes: ReadonlySet<string>,
): string | null {
  const unknown = options.find((option) => !plainOptions.has(option))
  if (type === 'tmpfs')
    return source !== undefined || read_only ? 'is in memory: it has no source, and is not read-only' : null
  const wrong = source === undefined ? null : faultOfSource(source)
  if (wrong) return wrong
  if (type !== 'volume') return `a mount of the type ${type} is not allowed: use a named volume`
  if (source === undefined) return 'must name its volume, so that its data is kept'
  if (!volumes.has(source)) return `${source} is not among the volumes of this text`
  if (bind) return 'is a volume: `bind` is not supported'
  if (volume?.nocopy || unknown === 'nocopy')
    return '`nocopy` is not supported: a new volume gets what the image has at its path'
  return unknown === undefined ? null : `the option ${unknown} is not supported`
}

function longVolume(one: string | LongVolume): LongVolume {
  if (typeof one !== 'string') return one
  const parts = one.split(':')
  if (parts.length === 1) return { target: one }
  const [source = '', target = '', ...more] = parts
  const options = more.flatMap((some) => some.split(','))
  return { source, target, read_only: options.includes('ro'), options }
}

const largestMib = 65_536

/** Null: as large as the container's memory. */
function sizeOf(size: string | number | undefined, at: Path, fault: Reading['fault']): number | null {
  if (size === undefined) return null
  const mib = mebibytesOf(size)
  const isSize = mib !== null && mib > 0 && mib <= largestMib
  if (!isSize) fault(at, 'must have a size of at most 64g, such as 64m')
  return isSize ? mib : null
}

/** What the engine does anyway. */
const usualInMemory = new Set(['rw', 'noexec', 'nosuid', 'nodev', 'mode=1777', 'mode=01777'])

function tmpfsOf({ keys, fault }: Reading, claim: Claim): Mounts['tmpfs'] {
  const value = (keys['tmpfs'] ?? []) as string | string[]
  return (Array.isArray(value) ? value : [value]).flatMap((one, index) => {
    const at: Path = Array.isArray(value) ? ['tmpfs', index] : ['tmpfs']
    const [mount_path = '', ...more] = one.split(':')
    const options = more.flatMap((some) => some.split(','))
    const size = options.find((option) => option.startsWith('size='))?.slice('size='.length)
    for (const option of options)
      if (!option.startsWith('size=') && !usualInMemory.has(option))
        fault(at, `the option ${option} is not supported`)
    return claim(mount_path, at) ? [{ mount_path, size_mib: sizeOf(size, at, fault) }] : []
  })
}

function sharedMemoryOf({ keys, fault }: Reading, claim: Claim): Mounts['tmpfs'] {
  const size = keys['shm_size'] as string | number | undefined
  const [mount_path, at]: [string, Path] = ['/dev/shm', ['shm_size']]
  if (size === undefined || !claim(mount_path, at)) return []
  return [{ mount_path, size_mib: sizeOf(size, at, fault) }]
}

interface LongConfig {
  source?: string
  target?: string
  uid?: string
  gid?: string
  mode?: number
}

function filesOf({ keys, around, fault }: Reading, claim: Claim): Mounts['files'] {
  const given = (keys['configs'] ?? []) as (string | LongConfig)[]
  return given.flatMap((one, index) => {
    const at: Path = ['configs', index]
    const long = typeof one === 'string' ? { source: one } : one
    const { source = '', target, uid = '0', gid = '0', mode = 0o444 } = long
    const content = around.configs.get(source)
    const mount_path = target ?? `/${source}`
    if (content === undefined) fault(at, `${source} is not among the configs of this text`)
    else if (uid !== '0' || gid !== '0') fault(at, 'must have the uid and gid 0: files belong to root')
    else if (!Number.isInteger(mode) || mode < 0 || mode > 0o777)
      fault([...at, 'mode'], 'must be 0 to 0777, such as 0440')
    else if (claim(mount_path, at)) return [{ mount_path, content, mode }]
    return []
  })
}
