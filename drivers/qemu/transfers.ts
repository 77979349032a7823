import { randomUUID } from 'node:crypto'
import { mkdir, rename, rm, stat, truncate } from 'node:fs/promises'
import { join } from 'node:path'
import type { DiskSource } from '../disks.ts'
import { EngineRefused, InstanceNotFound, KernelMissing } from '../errors.ts'
import type { FoundMachine, MachineSource } from '../machines.ts'
import { mergeRoot } from './guest-images.ts'
import type { MachineHost } from './host.ts'
import { publishMemory } from './memory.ts'
import { findQemu, forgetProcess } from './processes.ts'
import { type MachineRecord, writeRecord } from './records.ts'
import { recover } from './recover.ts'
import { writeSeed } from './vms.ts'
import { needUsable } from './suspend.ts'
import { run } from '../system/programs.ts'
import { publish, sync } from '../system/files.ts'
import { makePlaces, type Place } from '../qcow2/places.ts'
import { pull, type ServeOn, serve, stopServing } from '../qcow2/transfers.ts'

// Transfers a machine like a disk: its root disk merged with the base image, and its memory and its kernel as if they
// were snapshots. All are in a folder of their own meanwhile.

const memory = 'memory'
const kernelParts = ['kernel', 'initramfs'] as const

const transferPlace = (host: MachineHost, id: string): Place =>
  makePlaces(join(host.settings.folder, '.transfers'), join(host.settings.run, 't'))(id)

interface Carried {
  record: MachineRecord
  last_line: number
  /** The sizes of the kernel's files: an image is padded to a whole sector. */
  kernel_bytes?: Record<(typeof kernelParts)[number], number>
  contents: DiskSource['contents']
}

async function clear(place: Place): Promise<void> {
  await stopServing(place)
  for (const path of [place.folder, place.run]) await rm(path, { recursive: true, force: true })
}

/** See MachineTransfers.serve. */
export async function serveMachine(
  host: MachineHost,
  id: string,
  on: ServeOn | null,
  seconds: number,
  signal?: AbortSignal,
): Promise<MachineSource> {
  await recover(host, id)
  const record = await host.record(id)
  if (!record) throw new InstanceNotFound(id)
  const place = host.placeOf(id)
  if (!on) throw new EngineRefused('The host has no address to serve other hosts on')
  if ((await findQemu(place)) !== null) throw new EngineRefused('A running machine cannot be moved')
  const its = transferPlace(host, id)
  await clear(its)
  // Includes the base image, so that the other host needs nothing else.
  await mergeRoot(host, place, its.image, { base: await host.images.find(record.image_digest), signal })
  await mkdir(its.snapshots, { recursive: true })
  if (record.suspended)
    await run('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', place.memory, its.snapshot(memory)], {
      signal,
    })
  const kernel_bytes = record.kernel ? await carryKernel(host, record.kernel, its, signal) : undefined
  const { address, port, key, size_bytes, contents } = await serve(its, on, seconds)
  const { root_image: _, ...suspended } = record.suspended ?? { root_image: '' }
  const carried: Carried = {
    record,
    last_line: host.lastLine(place, record),
    contents,
    ...(kernel_bytes && { kernel_bytes }),
  }
  return {
    address,
    port,
    key,
    root_disk_bytes: size_bytes,
    suspended: record.suspended ? (suspended as MachineSource['suspended']) : null,
    record: JSON.stringify(carried),
  }
}

/** The other host may not have the kernel. */
async function carryKernel(
  host: MachineHost,
  digest: string,
  its: Place,
  signal: AbortSignal | undefined,
): Promise<NonNullable<Carried['kernel_bytes']>> {
  const files = await host.kernels.find(digest)
  const bytes = { kernel: 0, initramfs: 0 }
  for (const part of kernelParts) {
    await run('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', files[part], its.snapshot(part)], {
      signal,
    })
    bytes[part] = (await stat(files[part])).size
  }
  return bytes
}

/** Keeps the kernel that came with a machine. Throws KernelMissing if it is not that one. */
async function takeKernel(
  host: MachineHost,
  digest: string,
  bytes: NonNullable<Carried['kernel_bytes']>,
  its: Place,
): Promise<void> {
  const fileOf = (part: (typeof kernelParts)[number]): string => join(its.folder, part)
  for (const part of kernelParts) {
    await run('qemu-img', ['convert', '-f', 'qcow2', '-O', 'raw', its.snapshot(part), fileOf(part)])
    await truncate(fileOf(part), bytes[part])
  }
  await host.kernels.keep({ kernel: fileOf('kernel'), initramfs: fileOf('initramfs') }, digest)
}

export const stopServingMachine = (host: MachineHost, id: string): Promise<void> =>
  clear(transferPlace(host, id))

/** See MachineTransfers.pull. */
export async function pullMachine(
  host: MachineHost,
  id: string,
  from: MachineSource,
  signal?: AbortSignal,
): Promise<FoundMachine> {
  const { record, last_line, contents, kernel_bytes } = JSON.parse(from.record) as Carried
  if (record.suspended) await needUsable(host, record.suspended)
  const isHere = !record.kernel || (await host.kernels.findAny(record.kernel)) !== null
  if (record.kernel && !isHere && !kernel_bytes) throw new KernelMissing(record.kernel)
  const [place, its] = [host.placeOf(id), transferPlace(host, id)]
  if ((await findQemu(place)) !== null) throw new EngineRefused('The machine runs on this host')
  await clear(its)
  try {
    const { address, port, key, root_disk_bytes } = from
    const isKernel = (name: string | null): boolean => kernelParts.some((part) => part === name)
    const lacking = contents.filter(({ snapshot }) => !isHere || !isKernel(snapshot))
    await pull(its, { address, port, key, size_bytes: root_disk_bytes, contents: lacking }, { signal })
    if (record.kernel && !isHere && kernel_bytes) await takeKernel(host, record.kernel, kernel_bytes, its)
    // An older copy exists here: its output may not be archived yet.
    if ((await host.record(id)) !== null) await host.settings.beforeRemoval(id)
    await forgetProcess(place, host.mark)
    await host.removeFiles(place)
    await mkdir(place.folder, { recursive: true })
    await publish(its.image, place.root)
    if (record.suspended) {
      const part = `${place.unfinishedMemory}.new`
      await run('qemu-img', ['convert', '-f', 'qcow2', '-O', 'raw', its.snapshot(memory), part], { signal })
      await truncate(part, record.suspended.memory_bytes) // an image is padded to a whole sector
      await rename(part, place.unfinishedMemory)
      await sync(place.unfinishedMemory)
    }
    const present = {
      ...record,
      engine_id: randomUUID(),
      created_at: new Date().toISOString(),
      lines_before: last_line,
    }
    if (record.spec.kind === 'vm') await writeSeed(place, record, null)
    await writeRecord(place, present)
    if (record.suspended) await publishMemory(place)
  } finally {
    await clear(its)
  }
  host.changed(id)
  return host.present(id)
}
