import { mkdir, open, readdir, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { FoundSnapshot, Watching } from '../disks.ts'
import { EngineUnavailable } from '../errors.ts'
import { nullIfMissing } from '../system/files.ts'
import { killProcesses, processesWith, run } from '../system/programs.ts'
import type { Place } from './places.ts'

// The files of a disk. A file is written in `unfinished`, synced, and then renamed, so every named file is complete.

/** A qcow2 file in the notation of QEMU's block layer: alone, whatever backing file its header names. */
export const imageNode = (file: string) => ({
  driver: 'qcow2',
  backing: null,
  file: { driver: 'file', filename: file },
})

/** For arguments of qemu-img: it would probe the format of a plain name. */
export const asArgument = (node: object): string => `json:${JSON.stringify(node)}`

interface Header {
  /** The virtual size. */
  bytes: number
  /** No part of the image is in another file. */
  standsAlone: boolean
}

const magic = 0x514649fb
const externalDataFile = 4n

/** From QEMU's docs/interop/qcow2.txt; null if there is no image. */
async function headerOf(file: string): Promise<Header | null> {
  const handle = await open(file).catch(nullIfMissing)
  if (!handle) return null
  try {
    const { buffer } = await handle.read(Buffer.alloc(80), 0, 80, 0)
    if (buffer.readUInt32BE(0) !== magic) throw new EngineUnavailable(`${file} is not a qcow2 image`)
    const backingFile = buffer.readBigUInt64BE(8)
    // Version 2 has no such field, and no other data file.
    const incompatible = buffer.readUInt32BE(4) >= 3 ? buffer.readBigUInt64BE(72) : 0n
    return {
      bytes: Number(buffer.readBigUInt64BE(24)),
      standsAlone: backingFile === 0n && (incompatible & externalDataFile) === 0n,
    }
  } finally {
    await handle.close()
  }
}

/** The virtual size in bytes, from the image's header; null if there is no image. */
export const imageSize = async (file: string): Promise<number | null> => (await headerOf(file))?.bytes ?? null

/**
 * The same, for an image that the host opens as root although a guest's programs or another host wrote it: its header
 * may name any file of the host as a part of it. Throws then.
 */
export async function loneImageSize(file: string): Promise<number | null> {
  const header = await headerOf(file)
  if (header && !header.standsAlone) throw new EngineUnavailable('The disk’s image refers to other files')
  return header?.bytes ?? null
}

/** Bytes that a file uses on the host. */
export async function allocatedBytes(file: string): Promise<number> {
  const found = await stat(file).catch(nullIfMissing)
  return (found?.blocks ?? 0) * 512
}

/** Oldest first. */
export async function snapshotsOf(place: Place): Promise<FoundSnapshot[]> {
  const files = (await readdir(place.snapshots).catch(nullIfMissing)) ?? []
  const names = files.filter((file) => file.endsWith('.qcow2')).map((file) => file.slice(0, -6))
  const found = await Promise.all(names.map((name) => findSnapshot(place, name)))
  return found.filter((one) => one !== null).toSorted((a, b) => (a.taken_at < b.taken_at ? -1 : 1))
}

export async function findSnapshot(place: Place, name: string): Promise<FoundSnapshot | null> {
  const file = place.snapshot(name)
  const [info, size] = await Promise.all([stat(file).catch(nullIfMissing), loneImageSize(file)])
  if (!info || size === null) return null
  return {
    name,
    size_bytes: size,
    allocated_bytes: info.blocks * 512,
    taken_at: info.mtime.toISOString(),
  }
}

/** Makes an image of `bytes` with an empty file system. */
export async function formatImage(place: Place, file: string, bytes: number): Promise<void> {
  const raw = join(place.unfinished, 'raw')
  await writeFile(raw, '')
  await truncate(raw, bytes)
  await run('mkfs.xfs', ['-q', raw])
  await copyImage({ driver: 'raw', file: { driver: 'file', filename: raw } }, file)
  await rm(raw)
}

export interface CopyOptions extends Watching {
  /** More arguments for qemu-img: objects that the source refers to. */
  objects?: string[]
}

/** Copies an image without its zeros. */
export async function copyImage(source: object, file: string, options: CopyOptions = {}): Promise<void> {
  const { objects = [], onProgress, signal } = options
  // -W: write parts out of order, so that none waits for a slow one.
  const args = ['convert', '-p', '-W', ...objects, '-O', 'qcow2', asArgument(source), file]
  await run('qemu-img', args, { signal, onOutput: reportPercent(onProgress) })
}

/** Parses `    (42.01/100%)`; each overwrites the one before. */
const reportPercent =
  (onProgress?: (percent: number) => void) =>
  (text: string): void => {
    const last = [...text.matchAll(/\((\d+\.\d+)\/100%\)/g)].at(-1)
    if (last) onProgress?.(Number(last[1]))
  }

/** Makes a new, empty folder for unfinished files, after ending programs of a killed worker that still write there. */
export async function beginWriting(place: Place): Promise<void> {
  await discardUnfinished(place)
  await mkdir(place.unfinished, { recursive: true })
}

export async function discardUnfinished(place: Place): Promise<void> {
  const left = await stat(place.unfinished).catch(nullIfMissing)
  if (!left) return
  const text = `${place.unfinished}/`
  const writing = (await processesWith(text)).filter(({ args }) => !isDaemon(args))
  await killProcesses(
    writing.map(({ pid }) => pid),
    text,
  )
  await rm(place.unfinished, { recursive: true, force: true })
}

const isDaemon = (args: string[]): boolean => args[0]?.endsWith('qemu-storage-daemon') ?? false
