import { statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import Docker from 'dockerode'
import type { ContainerInspectInfo } from 'dockerode'
import { fileSystemOf } from '../linux/mounts.ts'
import { run } from '../system/programs.ts'
import { connection } from './connection.ts'
import { asking } from './errors.ts'

// Project quotas of XFS: the kernel refuses what a container writes to its layer beyond its bound. The engine sets one
// when it makes the container and never changes it, so the host does.

const gibibyte = 1024 ** 3
/** A layer with less room than this is full: programs write in pieces. */
const leastRoomBytes = 1024 ** 2

const bytesOf = (gib: number): number => Math.round(gib * gibibyte)

const succeeds = (call: Promise<unknown>): Promise<boolean> =>
  call.then(
    () => true,
    () => false,
  )

/**
 * Whether this host can hold layers to quotas: overlay folders on XFS with project quotas. Not if this process does not see
 * these folders or has no `xfs_quota`: it could not change a quota.
 */
export const hasLayerQuotas = (dockerHost: string): Promise<boolean> =>
  asking(async () => {
    const { Driver, DockerRootDir } = await new Docker(connection(dockerHost)).info()
    // The engine's image store of containerd, `overlayfs`, has no quotas. Those of btrfs count the image as well.
    if (Driver !== 'overlay2') return false
    const system = await fileSystemOf(join(DockerRootDir, Driver))
    const isOn = system?.type === 'xfs' && system.options.includes('prjquota')
    return isOn && succeeds(run('xfs_quota', ['-V']))
  })

/** The option of the engine's create call. */
export const layerQuota = (gib: number) => ({ StorageOpt: { size: String(bytesOf(gib)) } })

/** The folder of an overlay. Other layers have none, and the engine's image store of containerd does not tell it. */
export const layerOf = ({ GraphDriver }: ContainerInspectInfo): string | undefined =>
  (GraphDriver?.Data as { UpperDir?: string } | null | undefined)?.UpperDir

/** What the quota of a container's layer allows and leaves, in bytes. Null if no quota holds the layer. */
async function quotaOf(info: ContainerInspectInfo): Promise<{ bytes: number; rest: number } | null> {
  const layer = layerOf(info)
  if (!layer || !wasMadeWithQuota(info)) return null
  // A folder with a quota tells of its quota, the folder of all layers of the file system.
  const [its, all] = await Promise.all([layer, dirname(dirname(layer))].map(roomOf))
  return its && all && its.bytes < all.bytes ? its : null
}

const wasMadeWithQuota = ({ HostConfig }: ContainerInspectInfo): boolean =>
  Boolean((HostConfig as { StorageOpt?: { size?: string } | null }).StorageOpt?.size)

const roomOf = (path: string): Promise<{ bytes: number; rest: number } | null> =>
  statfs(path).then(
    ({ blocks, bfree, bsize }) => ({ bytes: blocks * bsize, rest: bfree * bsize }),
    () => null, // the container has gone
  )

export const isHeld = async (info: ContainerInspectInfo): Promise<boolean> => (await quotaOf(info)) !== null

/** Whether writes to the layer fail. */
export async function isLayerFull(info: ContainerInspectInfo): Promise<boolean> {
  const quota = await quotaOf(info)
  return quota !== null && quota.rest < leastRoomBytes
}

/** Changes the quota of a container that has one. A lower one than is written lets it write nothing more. */
export async function holdLayer(info: ContainerInspectInfo, gib: number | null): Promise<void> {
  if (gib !== null) await limit(info, bytesOf(gib))
}

/** Lifts the quota of a container that has one, for its start: the engine makes a folder in a layer, which may be full. */
export const letGoLayer = (info: ContainerInspectInfo): Promise<void> => limit(info, 0)

async function limit(info: ContainerInspectInfo, bytes: number): Promise<void> {
  const layer = layerOf(info)
  if (!layer || !wasMadeWithQuota(info)) return
  const [room, system] = await Promise.all([roomOf(layer), fileSystemOf(layer)])
  // Mounted without quotas since, or as it should be.
  if (!system?.options.includes('prjquota') || room?.bytes === bytes) return
  const told = await run('xfs_io', ['-r', '-c', 'lsproj', layer])
  const [, project = '0'] = /^projid = (\d+)$/m.exec(told) ?? []
  if (project === '0') return
  // Both, as the engine sets both: the file system tells of the soft one.
  const command = `limit -p bsoft=${bytes} bhard=${bytes} ${project}`
  await run('xfs_quota', ['-x', '-c', command, system.path])
}
