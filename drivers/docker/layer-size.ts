import { access } from 'node:fs/promises'
import type Docker from 'dockerode'
import type { FoundContainer } from '../containers.ts'
import { threadsOf } from '../linux/cgroups.ts'
import { bytesOf } from '../linux/file-usage.ts'
import { unless } from './errors.ts'
import { isHeld, layerOf } from './layer-quota.ts'

/** The engine walks the layer itself, without lower priorities. */
const engineWithinMs = 60_000

/** Where a container's own files are. */
export interface OwnFiles {
  /** Its layer, the volumes that its image declares, and the three files that the engine makes for it in its own folder. */
  paths: string[]
  /** Whether a quota holds the layer to the limit. */
  held: boolean
}

/** Null if this process does not see the layer, or if there is no such container. */
export async function ownFiles(docker: Docker, engineId: string): Promise<OwnFiles | null> {
  const info = await unless([404], docker.getContainer(engineId).inspect())
  const layer = info && layerOf(info)
  const isSeen =
    layer !== undefined &&
    (await access(layer).then(
      () => true,
      () => false,
    ))
  if (!info || !isSeen) return null
  const volumes = info.Mounts.flatMap(({ Type, Source }) => (Type === 'volume' ? [Source] : []))
  const paths = [layer, ...volumes, info.HostsPath, info.HostnamePath, info.ResolvConfPath].filter(Boolean)
  return { paths, held: await isHeld(info) }
}

/**
 * What a container's own files take, or some number beyond the limit; null if it is gone. Without `files`, the engine
 * says it, and leaves out volumes and deleted files.
 */
export async function layerBytes(
  docker: Docker,
  { engine_id, pid }: FoundContainer,
  files: OwnFiles | null,
  limitBytes: number,
  signal: AbortSignal,
): Promise<number | null> {
  if (files) {
    const threads = pid === null ? [] : await threadsOf(pid, engine_id)
    // The files of an overlay are the overlay's to those that have them open.
    const { paths } = files
    return bytesOf({ paths, threads, besides: pid === null ? [] : [`/proc/${pid}/root`] }, limitBytes, signal)
  }
  const within = AbortSignal.any([signal, AbortSignal.timeout(engineWithinMs)])
  // Its types lack both options, and the answer's field.
  const options = { size: true, abortSignal: within } as Docker.ContainerInspectOptions
  const info = await unless([404], docker.getContainer(engine_id).inspect(options))
  return (info as { SizeRw?: number } | undefined)?.SizeRw ?? null
}
