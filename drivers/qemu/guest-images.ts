import { chown, lchown, lstat, mkdir } from 'node:fs/promises'
import { dirname } from 'node:path'
import { EngineUnavailable } from '../errors.ts'
import { imageSize } from '../qcow2/images.ts'
import { confine, giveFile } from '../system/confinement.ts'
import type { BaseImage } from './images.ts'
import type { MachineHost } from './host.ts'
import type { MachinePlace } from './places.ts'

// What the host does with a root disk's file that a machine's QEMU has written. Its header may name any file as a part of it,
// so that qemu-img runs as the machine's user, who sees nothing else.

interface Work {
  args: string[]
  base: BaseImage | null
  writable: string[]
  signal?: AbortSignal | undefined
}

async function imageTool(
  host: MachineHost,
  place: MachinePlace,
  { args, base, writable, signal }: Work,
): Promise<void> {
  const { helper } = await host.boot()
  await mkdir(place.run, { recursive: true })
  await giveFile(place.user, place.root)
  const order = {
    program: 'qemu-img',
    arguments: args,
    user: place.user,
    group: place.user,
    writable,
    readable: [place.root, ...(base ? [base.file] : [])].filter((file) => !writable.includes(file)),
    root: place.view,
  }
  await confine(helper, `${place.run}/`, order, signal ? { signal } : {})
}

/** Grows a root disk to `bytes`, unless it has as many. */
export async function growRoot(
  host: MachineHost,
  place: MachinePlace,
  base: BaseImage,
  bytes: number,
): Promise<void> {
  if (((await imageSize(place.root)) ?? bytes) >= bytes) return
  const args = ['resize', '-q', '-f', 'qcow2', place.root, String(bytes)]
  await imageTool(host, place, { args, base, writable: [place.root] })
}

/** Writes the root disk, with what it has of its base image, to a new file, the first in its folder. */
export async function mergeRoot(
  host: MachineHost,
  place: MachinePlace,
  file: string,
  { base, signal }: Pick<Work, 'base' | 'signal'>,
): Promise<void> {
  const folder = dirname(file)
  await mkdir(folder, { recursive: true })
  await chown(folder, place.user, place.user)
  const args = ['convert', '-f', 'qcow2', '-O', 'qcow2', place.root, file]
  await imageTool(host, place, { args, base, writable: [folder], signal })
  for (const path of [folder, file]) await lchown(path, 0, 0)
  // A guest that breaks qemu-img could leave a link to another machine's disk, which the host would follow as root.
  if (!(await lstat(file)).isFile()) throw new EngineUnavailable('The root disk could not be copied')
}
