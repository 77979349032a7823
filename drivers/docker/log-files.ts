import { createHash } from 'node:crypto'
import { closeSync, constants, fstatSync, readSync } from 'node:fs'
import { access } from 'node:fs/promises'
import { join } from 'node:path'
import Docker, { type ContainerInspectInfo } from 'dockerode'
import { connection } from './connection.ts'
import { asking } from './errors.ts'
import { hasMore, openAll, removeFile, type SeenFile } from './log-names.ts'
import { lookAt } from './run.ts'
import { labels } from './spec.ts'
import type { LogFile, LogFiles, LogSource } from '../log-files.ts'

interface Settings {
  hostId: string
  dockerHost: string
  /** `logFolder` of that engine; null where it is out of reach. */
  folder: string | null
}

/** The files of the engine's `json-file` driver. */
export function makeDockerLogFiles({ hostId, dockerHost, folder }: Settings): LogFiles {
  const docker = new Docker(connection(dockerHost))
  return {
    sourceOf: (id) =>
      asking(async () => {
        const info = await lookAt(docker, hostId, id)
        return info && sourceOf(info)
      }),

    hasFull: (engineId) => folder !== null && hasMore(join(folder, engineId, `${engineId}-json.log`), 0),

    isOverCap: ({ path, kept_files }) => hasMore(path, kept_files),

    open: openFiles,
  }
}

/** See LogFiles.open. */
export function openFiles(source: LogSource, which: 'over_cap' | 'all'): LogFile[] {
  const files = openAll(source.path, source.most_files)
  const lastAside = files.findLastIndex(({ number }) => number === null)
  const beyond = Math.max(lastAside + 1, files.length - 1 - source.kept_files)
  const wanted = which === 'all' ? files.length : beyond
  for (const { descriptor } of files.slice(wanted)) closeSync(descriptor)
  return files.slice(0, wanted).map((file) => openedFile(source, file))
}

function sourceOf({ Id, Created, LogPath, Config, HostConfig }: ContainerInspectInfo): LogSource | null {
  const files = Number(HostConfig.LogConfig?.Config?.['max-file'])
  // Without a label the engine drops what is beyond the cap: there is never more than the cap allows.
  const kept = Number(Config.Labels[labels.keptLogs] ?? files)
  if (!files || !LogPath) return null
  return {
    id: Config.Labels[labels.resource] ?? '',
    engine_id: Id,
    engine_created_at: Created,
    path: LogPath,
    kept_files: kept,
    most_files: files - 1, // beside the one that is written to
  }
}

/**
 * Where the engine has its containers' files; null where this program does not reach them: it may lack the right, or run in a
 * container without them. Throws EngineUnavailable.
 */
export async function logFolder(dockerHost: string): Promise<string | null> {
  const { DockerRootDir } = await asking(() => new Docker(connection(dockerHost)).info())
  const folder = join(DockerRootDir, 'containers')
  return access(folder, constants.R_OK | constants.W_OK | constants.X_OK).then(
    () => folder,
    () => null,
  )
}

// An entry is 16 KiB of output at most, six times that where all of it is escaped.
const longestEntry = 128 * 1024
const newline = 0x0a

function openedFile({ path, most_files }: LogSource, file: SeenFile): LogFile {
  const { descriptor } = file
  const read = (from: number, bytes: number): Buffer => {
    const buffer = Buffer.allocUnsafe(bytes)
    return buffer.subarray(0, readSync(descriptor, buffer, 0, bytes, from))
  }
  const size = fstatSync(descriptor).size
  const isFull = file.number !== 0
  return {
    key: keyOf(read(0, longestEntry)),
    // What is being written may end in the middle of a line; a full file that does was cut by a crash of the engine.
    bytes: isFull ? size : endOfLines(read(Math.max(0, size - longestEntry), longestEntry), size),
    after_gap: file.number === most_files,
    read(from, bytes) {
      const part = read(from, bytes)
      return from + part.length >= this.bytes
        ? part.subarray(0, this.bytes - from)
        : part.subarray(0, part.lastIndexOf(newline) + 1 || part.length)
    },
    drop: () => removeFile(path, file, most_files),
    close: () => closeSync(descriptor),
  }
}

const keyOf = (start: Buffer): string =>
  createHash('sha256')
    .update(start.subarray(0, start.indexOf(newline) + 1 || start.length))
    .digest('hex')

/** Where the last whole line ends, of a file of that size with this end. */
const endOfLines = (end: Buffer, size: number): number => size - (end.length - (end.lastIndexOf(newline) + 1))
