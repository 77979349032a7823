import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { PullOptions } from '../containers.ts'
import { HostNotEquipped, ImageNotFound } from '../errors.ts'
import type { MachineHost } from './host.ts'
import { type BaseImage, type ImageConfig, machineImage } from './images.ts'
import type { MachinePlace } from './places.ts'
import type { MachineRecord } from './records.ts'
import { processesWith, run, signalProcess, until } from '../system/programs.ts'
import { asArgument } from '../qcow2/images.ts'
import { nullIfMissing, publish } from '../system/files.ts'

// VMs only: their built images, and a cloud-init settings disk (NoCloud).

export const vmImages = ['debian-12', machineImage] as const

const nothing: Omit<ImageConfig, 'digest'> = {
  command: [],
  entrypoint: [],
  env: [],
  folder: '/',
  user: '',
  signal: 0,
}

/** Returns the root disk of a VM image and makes it if it is missing, one at a time. Throws ImageNotFound, HostDiskFull. */
export async function prepareVm(
  host: MachineHost,
  image: string,
  { digest: pinned, signal }: PullOptions,
): Promise<BaseImage> {
  if (!(vmImages as readonly string[]).includes(image)) throw new ImageNotFound(image)
  const { kernelVersion } = await host.boot()
  const { vmBuild, guest } = host.settings
  // The image's modules must match the kernel with which it was made.
  const digest = pinned ?? `${image}-${kernelVersion}-${vmBuild ? await recipeOf(vmBuild, guest) : ''}`
  return host.inTurn(`image ${digest}`, async () => {
    const there = await host.images.find(digest)
    if (there) return there
    if (!vmBuild) throw new HostNotEquipped('the tools that build VM images')
    const folder = join(imagesOf(host), `${unfinished}${digest}`)
    await discardBuild(folder) // left by a killed worker
    await host.images.needRoom(buildBytes)
    signal?.throwIfAborted()
    const callOff = (): void => void discardBuild(folder).catch(() => {}) // `finally` reports it
    signal?.addEventListener('abort', callOff, { once: true })
    try {
      await run('unshare', [...alone, vmBuild, `${folder}/`, guest, image])
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

/** A name for the files of which images are made: a host of a newer version makes them anew. */
async function recipeOf(vmBuild: string, guest: string): Promise<string> {
  const folders = [dirname(vmBuild), join(dirname(vmBuild), '../machine')]
  const below = folders.map(async (folder) => {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true })
    return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
  })
  const hash = createHash('sha256')
  for (const file of [join(guest, 'agent'), ...(await Promise.all(below)).flat().toSorted()])
    hash.update(await readFile(file))
  return hash.digest('hex').slice(0, 12)
}

/** What a build takes at most: packages, files and the root disk. */
const buildBytes = 3 * 1024 ** 3

// Dozens of processes make an image, some with a root of their own. When the first process of their PID namespace
// ends, all end, and their mounts go with the mount namespace.
const alone = ['--pid', '--fork', '--kill-child', '--mount-proc']
const unfinished = '.making-'
const imagesOf = ({ settings }: MachineHost): string => join(settings.folder, 'images')

/** Ends and removes builds of killed workers. */
export async function discardBuilds(host: MachineHost): Promise<void> {
  const names = (await readdir(imagesOf(host)).catch(nullIfMissing)) ?? []
  for (const name of names) if (name.startsWith(unfinished)) await discardBuild(join(imagesOf(host), name))
}

const endsWithinMs = 30_000

async function discardBuild(folder: string): Promise<void> {
  // `unshare` ends by itself after all others, including those that do not name the folder.
  const end = async (): Promise<boolean> => {
    const left = await processesWith(`${folder}/`)
    for (const { pid, args } of left) if (args[0] !== 'unshare') signalProcess(pid, 'SIGKILL')
    return left.length === 0
  }
  await until(end, endsWithinMs, 'The build of an image does not end')
  await rm(folder, { recursive: true, force: true })
}

/**
 * Writes what cloud-init reads at each start of the VM. Contains the tenant's `user_data`, like the VM's own disk;
 * without it, a VM that started before keeps its setup. QEMU serves the folder as a FAT file system.
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
      'instance-id': spec.id, // cloud-init runs its once-only steps once per instance-id
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
