import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import { join } from 'node:path'
import Docker, { type ContainerInspectInfo } from 'dockerode'
import { connection } from './connection.ts'
import { asking } from './errors.ts'
import { lookAt } from './run.ts'
import { labels } from './spec.ts'
import type { LogFiles, LogSource } from '../log-files.ts'
import { openFiles } from '../system/log-files.ts'
import { hasMore } from '../system/log-names.ts'

interface Settings {
  hostId: string
  dockerHost: string
  /** `logFolder` of that engine; null if this process cannot reach it. */
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

function sourceOf({ Id, Created, LogPath, Config, HostConfig }: ContainerInspectInfo): LogSource | null {
  const files = Number(HostConfig.LogConfig?.Config?.['max-file'])
  // Without the label, the engine drops what exceeds the cap, so all its files are within the cap.
  const kept = Number(Config.Labels[labels.keptLogs] ?? files)
  if (!files || !LogPath) return null
  return {
    id: Config.Labels[labels.resource] ?? '',
    engine_id: Id,
    engine_created_at: Created,
    path: LogPath,
    kept_files: kept,
    most_files: files - 1, // minus the file being written
  }
}

/**
 * The folder with the engine's container files. Null if this process cannot reach it: it lacks permission, or runs in
 * a container without the folder. Throws EngineUnavailable.
 */
export async function logFolder(dockerHost: string): Promise<string | null> {
  const { DockerRootDir } = await asking(() => new Docker(connection(dockerHost)).info())
  const folder = join(DockerRootDir, 'containers')
  return access(folder, constants.R_OK | constants.W_OK | constants.X_OK).then(
    () => folder,
    () => null,
  )
}
