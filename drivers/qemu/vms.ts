import { mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { PullOptions } from '../containers.ts'
import { HostNotEquipped, ImageNotFound } from '../errors.ts'
import type { MachineHost } from './host.ts'
import type { BaseImage, ImageConfig } from './images.ts'
import type { MachinePlace } from './places.ts'
import type { MachineRecord } from './records.ts'
import { processesWith, run, signalProcess, until } from '../system/programs.ts'
import { asArgument } from '../qcow2/images.ts'
import { nullIfMissing, publish } from '../system/files.ts'

// What only VMs have: an image of their own making, and settings for cloud-init on a disk (NoCloud).

export const vmImages = ['debian-12'] as const

const nothing: Omit<ImageConfig, 'digest'> = {
  command: [],
  entrypoint: [],
  env: [],
  folder: '/',
  user: '',
  signal: 0,
}

/** The root disk of a VM's image; made where it is missing, once at a time. Throws ImageNotFound. */
export async function prepareVm(
  host: MachineHost,
  image: string,
  { digest: pinned, signal }: PullOptions,
): Promise<BaseImage> {
  if (!(vmImages as readonly string[]).includes(image)) throw new ImageNotFound(image)
  const { kernelVersion } = await host.boot()
  // Its modules are those of the kernel with which it was made.
  const digest = pinned ?? `${image}-${kernelVersion}`
  return host.inTurn(`image ${digest}`, async () => {
    const there = await host.images.find(digest)
    if (there) return there
    const { vmBuild, guest } = host.settings
    if (!vmBuild) throw new HostNotEquipped('the tools that build VM images')
    const folder = join(imagesOf(host), `${unfinished}${digest}`)
    await discardBuild(folder) // of a worker that was killed
    signal?.throwIfAborted()
    const callOff = (): void => void discardBuild(folder).catch(() => {}) // told below
    signal?.addEventListener('abort', callOff, { once: true })
    try {
      await run('unshare', [...alone, vmBuild, `${folder}/`, guest])
      return await host.images.keep(join(folder, 'root.qcow2'), { digest, ...nothing })
    } catch (error) {
      signal?.throwIfAborted()
      throw error
    } finally {
      signal?.removeEventListener('abort', callOff)
      await discardBuild(folder)
    }
  })
}

// Dozens of processes make an image, some in a root of their own: with the first of their namespace all of them end, and
// with its mounts nothing is left mounted.
const alone = ['--pid', '--fork', '--kill-child', '--mount-proc']
const unfinished = '.making-'
const imagesOf = ({ settings }: MachineHost): string => join(settings.folder, 'images')

/** Ends what a killed worker was making, and takes it away. */
export async function discardBuilds(host: MachineHost): Promise<void> {
  const names = (await readdir(imagesOf(host)).catch(nullIfMissing)) ?? []
  for (const name of names) if (name.startsWith(unfinished)) await discardBuild(join(imagesOf(host), name))
}

const endsWithinMs = 30_000

async function discardBuild(folder: string): Promise<void> {
  // `unshare` is left to end by itself: it does so when all others have, those too that do not name the folder.
  const end = async (): Promise<boolean> => {
    const left = await processesWith(`${folder}/`)
    for (const { pid, args } of left) if (args[0] !== 'unshare') signalProcess(pid, 'SIGKILL')
    return left.length === 0
  }
  await until(end, endsWithinMs, 'The making of an image does not end')
  await rm(folder, { recursive: true, force: true })
}

/**
 * Writes what cloud-init reads at each start of the VM. It holds the tenant's `user_data`, as a VM's own disk does; without
 * them, a VM that has started before goes on as it is set up. QEMU makes a FAT file system of a folder.
 */
export async function writeSeed(
  place: MachinePlace,
  { spec }: MachineRecord,
  userData: string | null,
): Promise<void> {
  const files = join(place.folder, 'seed')
  await rm(files, { recursive: true, force: true })
  await mkdir(files, { recursive: true, mode: 0o700 })
  try {
    const metadata = {
      'instance-id': spec.id, // what cloud-init does once, it does once for each
      'local-hostname': spec.name,
      'public-keys': spec.ssh_keys ?? [],
    }
    await writeFile(join(files, 'meta-data'), JSON.stringify(metadata), { mode: 0o600 })
    await writeFile(join(files, 'user-data'), userData ?? '#cloud-config\n{}\n', { mode: 0o600 })
    const source = asArgument({ driver: 'vvfat', dir: files, label: 'cidata' })
    await run('qemu-img', ['convert', '-O', 'qcow2', source, `${place.seed}.new`])
    await publish(`${place.seed}.new`, place.seed)
  } finally {
    await rm(files, { recursive: true, force: true })
  }
}
