import { randomUUID } from 'node:crypto'
import {
  chmod,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  statfs,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import Docker from 'dockerode'
import { makeNamedQueues } from '../../lib/queue.ts'
import { connection } from '../docker/connection.ts'
import { asking, unless } from '../docker/errors.ts'
import { type HostImages, isDue } from '../docker/host-images.ts'
import { pullImage } from '../docker/images.ts'
import type { PullOptions } from '../containers.ts'
import { EngineUnavailable, HostDiskFull } from '../errors.ts'
import { copyImage, imageSize } from '../qcow2/images.ts'
import { environment, processesWith, run } from '../system/programs.ts'
import { nullIfMissing, publish, publishText } from '../system/files.ts'

/** The image of VMs with an engine for containers, for machines of deploy servers. */
export const machineImage = 'machine'

// Root disks: an image's files as ext4 in a qcow2, once per digest. Each machine writes to an overlay on it.

/** The image's settings for its command. */
export interface ImageConfig {
  digest: string
  command: string[]
  entrypoint: string[]
  env: string[]
  folder: string
  user: string
  /** The number of its stop signal; 0 for the default. */
  signal: number
}

export interface BaseImage {
  file: string
  config: ImageConfig
  size_bytes: number
}

const signals: Record<string, number> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGUSR2: 12,
  SIGTERM: 15,
  SIGWINCH: 28,
}

const mebibyte = 1024 ** 2
const host = 'keelson.host'

const nameOf = (digest: string): string => digest.replace(/[^a-zA-Z0-9]/g, '-')

/** How images come to the Docker Engine. */
export type ImagePulls = Pick<HostImages, 'pull'>

interface Settings {
  hostId: string
  dockerHost: string
  pulls: ImagePulls | null
  /** What root disks leave free on the disk with `folder`. */
  freeBytes: number
  /** The digests that machines use. */
  used: () => Promise<string[]>
}

/** While a root disk is made, there are the files, the plain file system and the qcow2, each as large as the image. */
const copiesAtOnce = 3

/** Builds them with a Docker Engine, which pulls images and merges their layers. */
export function makeRootImages(folder: string, { freeBytes, used, ...docker }: Settings) {
  const engine = new Docker(connection(docker.dockerHost))
  const mine = new Set<string>()
  const folderOf = (digest: string): string => join(folder, nameOf(digest))
  const described = (name: string): string => join(folder, name, 'image.json')
  // Finding and removing an image run in turn. An image that was found counts as used from then on, so it is not
  // removed.
  const inTurn = makeNamedQueues()
  // A separate queue, because making an image also calls `find`.
  const makingInTurn = makeNamedQueues()

  const find = (digest: string): Promise<BaseImage | null> =>
    inTurn(nameOf(digest), async () => {
      const description = described(nameOf(digest))
      const text = await readFile(description, 'utf8').catch(nullIfMissing)
      if (text === null) return null
      const now = new Date()
      await utimes(description, now, now)
      const file = join(folderOf(digest), 'root.qcow2')
      return { file, config: JSON.parse(text) as ImageConfig, size_bytes: (await imageSize(file)) ?? 0 }
    })

  /**
   * Removes root disks that no machine uses and that were not asked for in `unusedMs`; if there is less room than `bytes`
   * beside what stays free, also those not asked for in an hour, the longest unused first. Returns their names.
   */
  async function removeUnused(unusedMs: number, bytes = 0): Promise<string[]> {
    const names = (await readdir(folder).catch(nullIfMissing)) ?? []
    const found: { name: string; usedAt: number }[] = []
    for (const name of names.filter((one) => !one.startsWith('.'))) {
      const usedAt = await lastUse(name)
      if (usedAt !== null) found.push({ name, usedAt })
    }
    const removed: string[] = []
    for (const { name, usedAt } of found.toSorted((a, b) => a.usedAt - b.usedAt)) {
      if (!isDue(Date.now() - usedAt, unusedMs, await lacksRoom(bytes))) continue
      const isRemoved = await inTurn(name, async () => {
        // Asked in the image's turn: an image found before has a record by then, or was used since.
        if ((await lastUse(name)) !== usedAt || (await used()).map(nameOf).includes(name)) return false
        // Renaming is atomic for readers; if the worker is killed now, an unfinished folder is left.
        const leaving = join(folder, `.unfinished-${randomUUID()}`)
        await rename(join(folder, name), leaving)
        await rm(leaving, { recursive: true, force: true })
        return true
      })
      if (isRemoved) removed.push(name)
    }
    await clearUnfinished()
    return removed
  }

  /** When an image was last asked for, in ms; null if it is gone. */
  async function lastUse(name: string): Promise<number | null> {
    // A worker killed before the description was written left only the disk.
    for (const file of [described(name), join(folder, name, 'root.qcow2')]) {
      const found = await stat(file).catch(nullIfMissing)
      if (found) return found.mtimeMs
    }
    return null
  }

  async function lacksRoom(bytes: number): Promise<boolean> {
    const { bavail, bsize } = await statfs(folder)
    return bavail * bsize < freeBytes + bytes
  }

  /** Makes room for what a new root disk takes, or throws HostDiskFull. */
  async function needRoom(bytes: number): Promise<void> {
    await mkdir(folder, { recursive: true })
    if (!(await lacksRoom(bytes))) return
    await removeUnused(Infinity, bytes)
    if (await lacksRoom(bytes)) throw new HostDiskFull(undefined, 'the image')
  }

  /** Returns the root disk of an image and makes it if it is missing. Throws ImageNotFound, HostDiskFull. */
  async function prepare(image: string, options: PullOptions): Promise<BaseImage> {
    const known = options.digest ? await find(options.digest) : null
    if (known) return known
    const pulled = docker.pulls?.pull(image, options) ?? pullImage(engine, image, options)
    const { id, digest } = await asking(() => pulled, options.signal)
    // Many machines may request a new image at once: the first makes it, the others find it.
    return makingInTurn(digest, async () => {
      const there = await find(digest)
      if (there) return there
      options.signal?.throwIfAborted()
      await clearUnfinished()
      const { Size } = await asking(() => engine.getImage(id).inspect(), options.signal)
      await needRoom(Size * copiesAtOnce)
      return making(async (unfinished) => {
        const tree = join(unfinished, 'tree')
        await mkdir(tree, { recursive: true })
        const config = await asking(() => unpack(id, digest, tree, options.signal), options.signal)
        const file = join(unfinished, 'root.qcow2')
        await makeRoot(tree, join(unfinished, 'raw'), file, options.signal)
        return keep(file, config)
      })
    })
  }

  /** Runs `work` with a folder that is removed afterwards. */
  async function making<T>(work: (unfinished: string) => Promise<T>): Promise<T> {
    const name = `.unfinished-${randomUUID()}`
    mine.add(name)
    try {
      return await work(join(folder, name))
    } finally {
      await rm(join(folder, name), { recursive: true, force: true })
      mine.delete(name)
    }
  }

  /** Moves a complete root disk to its place. */
  async function keep(file: string, config: ImageConfig): Promise<BaseImage> {
    await chmod(file, 0o644) // each machine's user reads it
    await publish(file, join(folderOf(config.digest), 'root.qcow2'))
    await publishText(join(folderOf(config.digest), 'image.json'), JSON.stringify(config))
    const made = await find(config.digest)
    if (!made) throw new EngineUnavailable('The image’s root disk could not be made')
    return made
  }

  /** Removes leftovers of killed workers, but not what other calls are writing. */
  async function clearUnfinished(): Promise<void> {
    const names = (await readdir(folder).catch(nullIfMissing)) ?? []
    for (const name of names.filter((one) => one.startsWith('.unfinished-'))) {
      if (mine.has(name) || (await processesWith(join(folder, name))).length > 0) continue
      await rm(join(folder, name), { recursive: true, force: true })
    }
  }
  /** The engine can export containers but not images, so this makes a container that never runs. */
  async function unpack(
    id: string,
    digest: string,
    tree: string,
    signal: AbortSignal | undefined,
  ): Promise<ImageConfig> {
    const name = `keelson-root-${docker.hostId}-${digest.replace(/[^a-f0-9]/g, '').slice(-32)}`
    await unless([404], engine.getContainer(name).remove({ force: true }))
    const container = await engine.createContainer({
      name,
      Image: id,
      Cmd: ['-'],
      Labels: { [host]: docker.hostId, 'keelson.kind': 'root' },
    })
    try {
      const tar = spawn(
        'tar',
        ['--numeric-owner', '--xattrs', '--xattrs-include=*', '-xpf', '-', '-C', tree],
        {
          env: environment,
          stdio: ['pipe', 'ignore', 'ignore'],
          ...(signal ? { signal } : {}),
        },
      )
      const ended = once(tar, 'exit')
      await pipeline(await container.export(), tar.stdin)
      const [code] = (await ended) as [number | null]
      if (code !== 0) throw new EngineUnavailable('The image could not be unpacked')
    } finally {
      await unless([404], container.remove({ force: true }))
    }
    const { Config } = await engine.getImage(id).inspect()
    return {
      digest,
      command: Config.Cmd ?? [],
      entrypoint: ([] as string[]).concat(Config.Entrypoint ?? []),
      env: Config.Env ?? [],
      folder: Config.WorkingDir || '/',
      user: Config.User ?? '',
      signal: signals[(Config as { StopSignal?: string }).StopSignal ?? ''] ?? 0,
    }
  }

  return { prepare, find, keep, needRoom, removeUnused }
}

// The minimum size of a root disk. A machine that keeps it need not grow its file system at start, which takes a guest
// without KVM a third of a second.
const leastBytes = 1024 ** 3

/** Adds space for the file system's tables and journal, and for the rest of each file's last block. */
async function makeRoot(
  tree: string,
  raw: string,
  file: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  const [used = '0'] = (await run('du', ['-s', '-B', '4096', tree], { signal })).split('\t')
  const bytes = Math.max(leastBytes, Math.ceil((Number(used) * 4096 * 1.2) / mebibyte + 24) * mebibyte)
  await writeFile(raw, '')
  await truncate(raw, bytes)
  const extended = ['-E', 'lazy_itable_init=0,lazy_journal_init=0']
  await run('mkfs.ext4', ['-q', '-F', '-b', '4096', '-m', '0', ...extended, '-d', tree, raw], { signal })
  await copyImage({ driver: 'raw', file: { driver: 'file', filename: raw } }, file, { signal })
}

/** Makes an overlay for a machine's changes to a base image. */
export async function makeOverlay(base: string, file: string, bytes: number): Promise<void> {
  await rm(file, { force: true })
  await run('qemu-img', ['create', '-q', '-f', 'qcow2', '-F', 'qcow2', '-b', base, file, String(bytes)])
}
