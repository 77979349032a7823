import { mkdir, readdir, readFile, rm, stat, statfs, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import Docker from 'dockerode'
import { z } from 'zod'
import { makeNamedQueues } from '../../lib/queue.ts'
import type { MayAsk, PullOptions, RegistryLogin } from '../containers.ts'
import { HostDiskFull, ImageNotFound, ImageTooLarge } from '../errors.ts'
import { digest as digestOf } from '../system/digest.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import { connection } from './connection.ts'
import { asking, unless } from './errors.ts'
import { downloadImage, findLocal, type LocalImage, needAccess, referenceOf } from './images.ts'
import { makePrivateImages } from './private-images.ts'

// The images that this host pulled for tenants: how large they may be, and which are removed again. The host keeps a record
// of each, so images that somebody else brought to the engine (`docker load`, `docker pull`, builds) are never removed.

export interface HostImages {
  /** As ContainerEngine.pull. Throws ImageNotFound, ImageAccessDenied, ImageTooLarge, HostDiskFull. */
  pull(image: string, options?: PullOptions): Promise<LocalImage>
  /** Removes what is due, and returns the names. */
  collect(): Promise<string[]>
}

interface Settings {
  dockerHost: string
  /** Asked before a registry is. An image that the engine has needs none. */
  mayAsk: MayAsk
  /** For the records. */
  folder: string
  /** The largest image, unpacked. */
  mostBytes: number
  /** What stays free on the engine's disk. */
  freeBytes: number
  /** For how long an image stays that nothing uses. */
  unusedMs: number
}

// Longer than a start takes from its pull to its container.
const startsWithinMs = 3_600_000
const lookEveryMs = 1_000

/** Whether an image goes that no container has, and that was last used that long ago. */
export const isDue = (idleMs: number, unusedMs: number, lacksRoom: boolean): boolean =>
  idleMs > startsWithinMs && (lacksRoom || idleMs > unusedMs)

/**
 * Of an image, named by its id, with the names that it was pulled by. The file's time is the last use. Or of a download
 * that is not finished: it has no id, and is named by its reference.
 */
const ImageRecord = z.object({ id: z.string().nullable(), references: z.array(z.string()) })
type ImageRecord = z.infer<typeof ImageRecord>

export function makeHostImages({
  dockerHost,
  mayAsk,
  folder,
  mostBytes,
  freeBytes,
  unusedMs,
}: Settings): HostImages {
  const docker = new Docker(connection(dockerHost))
  const inTurn = makeNamedQueues()
  const privateOnes = makePrivateImages(join(folder, 'private'), startsWithinMs)
  /** How many calls download each reference. */
  const downloads = new Map<string, number>()
  const fileOf = (name: string): string => join(folder, `${digestOf(name, 32)}.json`)

  let engineFolder: Promise<string> | null = null
  async function freeNow(): Promise<number> {
    engineFolder ??= docker.info().then(({ DockerRootDir }: { DockerRootDir: string }) => DockerRootDir)
    const path = await engineFolder.catch((error: unknown) => {
      engineFolder = null
      throw error
    })
    // A worker in a container does not see the engine's folder, but is on the same disk.
    const { bavail, bsize } = await statfs(path).catch(() => statfs('/'))
    return bavail * bsize
  }
  const lacksRoom = async (below = freeBytes): Promise<boolean> => (await freeNow()) < below

  async function needRoom(): Promise<void> {
    if (!(await lacksRoom())) return
    await collect()
    if (await lacksRoom()) throw new HostDiskFull(undefined, 'the image')
  }

  const keep = (id: string, reference: string): Promise<void> =>
    inTurn(id, async () => {
      const known = (await recordOf(fileOf(id)))?.references ?? []
      const references = [...new Set([...known, reference])]
      await publishText(fileOf(id), JSON.stringify({ id, references } satisfies ImageRecord))
    })

  async function download(image: string, reference: string, options: PullOptions): Promise<LocalImage> {
    if (!(await mayAsk(image))) throw new ImageNotFound(image)
    await needRoom()
    const login = (await options.login?.()) ?? null
    if (login) await privateOnes.note(image)
    downloads.set(reference, (downloads.get(reference) ?? 0) + 1)
    try {
      await publishText(fileOf(reference), JSON.stringify({ id: null, references: [reference] }))
      let lookedAt = Date.now()
      const by = { ...options, login: async () => login }
      // Asks the registry even if somebody else's download has brought the image since: it may be private.
      const found = await downloadImage(docker, image, by, async (bytes) => {
        if (bytes > mostBytes) throw new ImageTooLarge(image, mostBytes)
        // A small layer may unpack to a large one.
        if (Date.now() - lookedAt < lookEveryMs) return
        lookedAt = Date.now()
        if (await lacksRoom(freeBytes / 2)) throw new HostDiskFull(undefined, 'the image')
      })
      await keep(found.id, reference)
      await privateOnes.letIn(image, login)
      await needSize(found.id, image)
      return found
    } finally {
      const others = (downloads.get(reference) ?? 1) - 1
      if (others) downloads.set(reference, others)
      else downloads.delete(reference)
      if (!others) await rm(fileOf(reference), { force: true })
    }
  }

  /** Asks the registry whether this tenant may have an image that is on the engine by somebody's login. */
  async function needOwnAccess(
    image: string,
    { login = async () => null, signal }: PullOptions,
  ): Promise<void> {
    let asked: Promise<RegistryLogin | null> | undefined
    const once = () => (asked ??= login())
    if (await privateOnes.isOpenTo(image, once)) return
    if (!(await mayAsk(image))) throw new ImageNotFound(image)
    await needAccess(docker, image, await once(), signal)
    await privateOnes.letIn(image, await once())
  }

  async function needSize(id: string, image: string): Promise<void> {
    const info = await unless([404], docker.getImage(id).inspect())
    if (!info || info.Size <= mostBytes) return
    await inTurn(id, () => remove(fileOf(id)))
    throw new ImageTooLarge(image, mostBytes)
  }

  /** Removes the image of a record under the names that the host pulled it by, and the record. False if it is in use. */
  async function remove(file: string): Promise<boolean> {
    const record = await recordOf(file)
    if (!record?.id) return false
    for (const reference of record.references) {
      const named = await unless([404], docker.getImage(reference).inspect())
      // Somebody gave the name to another image.
      if (named?.Id !== record.id) continue
      if ((await unless([404, 409], docker.getImage(reference).remove())) === undefined) return false
    }
    const left = await unless([404], docker.getImage(record.id).inspect())
    const isNamed = left && [...(left.RepoTags ?? []), ...(left.RepoDigests ?? [])].length > 0
    if (left && !isNamed) await unless([404, 409], docker.getImage(record.id).remove())
    await rm(file, { force: true })
    return true
  }

  /** Settles the download of a killed worker: the engine gave it up with its connection, or had just finished. */
  async function settle(file: string, reference: string): Promise<void> {
    const begun = await stat(file).catch(nullIfMissing)
    if (downloads.has(reference) || !begun || begun.mtimeMs > Date.now() - startsWithinMs) return
    const info = await unless([404], docker.getImage(reference).inspect())
    if (info) await keep(info.Id, reference)
    if (!downloads.has(reference)) await rm(file, { force: true })
  }

  async function collect(): Promise<string[]> {
    const names = (await readdir(folder).catch(nullIfMissing)) ?? []
    const files = names.filter((name) => name.endsWith('.json')).map((name) => join(folder, name))
    const found: { file: string; id: string; references: string[]; usedAt: number }[] = []
    for (const file of files) {
      const [record, about] = [await recordOf(file), await stat(file).catch(nullIfMissing)]
      if (record?.id === null) await settle(file, record.references[0] ?? '')
      else if (record?.id && about) found.push({ ...record, id: record.id, file, usedAt: about.mtimeMs })
    }
    const containers = await docker.listContainers({ all: true })
    const inUse = new Set(containers.map(({ ImageID }) => ImageID))
    const removed: string[] = []
    for (const { file, id, references, usedAt } of found.toSorted((a, b) => a.usedAt - b.usedAt)) {
      if (inUse.has(id)) await touch(file)
      else if (isDue(Date.now() - usedAt, unusedMs, await lacksRoom()))
        await inTurn(id, async () => {
          // It may have been used since.
          const again = await stat(file).catch(nullIfMissing)
          if (again?.mtimeMs === usedAt && (await remove(file))) removed.push(...references)
        })
    }
    return removed
  }

  return {
    pull: (image, options = {}) =>
      asking(async () => {
        await mkdir(folder, { recursive: true })
        const digest = options.digest ?? null
        const there = await findLocal(docker, image, digest)
        if (!there) return download(image, referenceOf(image, digest), options)
        // With a digest of its own, an instance has had these bytes before.
        if (digest === null) await needOwnAccess(image, options)
        await inTurn(there.id, () => touch(fileOf(there.id)))
        return there
      }, options.signal),

    collect: () =>
      asking(async () => {
        const removed = await collect()
        await privateOnes.collect(docker)
        return removed
      }),
  }
}

async function recordOf(file: string): Promise<ImageRecord | null> {
  const text = await readFile(file, 'utf8').catch(nullIfMissing)
  return text === null ? null : ImageRecord.parse(JSON.parse(text))
}

/** Notes a use. */
async function touch(file: string): Promise<void> {
  const now = new Date()
  await utimes(file, now, now).catch(nullIfMissing)
}
