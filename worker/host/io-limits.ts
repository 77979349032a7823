import { mkdir } from 'node:fs/promises'
import { diskOfDocker } from '../../drivers/docker/engine.ts'
import { diskBelow, type IoLimits } from '../../drivers/linux/block-devices.ts'
import type { Settings } from '../../config.ts'

/** What each instance may do on the disk below a folder, by default the engine's. Null: as much as the disk gives. */
export async function ioLimits(settings: Settings<'host'>, folder?: string): Promise<IoLimits | null> {
  const { KEELSON_CONTAINER_IO_MIB: mib, KEELSON_CONTAINER_IOPS: operations } = settings
  if (mib === 0) return null
  if (folder !== undefined) await mkdir(folder, { recursive: true })
  const disk = await (folder === undefined ? diskOfDocker(settings.KEELSON_DOCKER_HOST) : diskBelow(folder))
  return disk === null ? null : { disk, bytes: mib * 1024 ** 2, operations }
}
