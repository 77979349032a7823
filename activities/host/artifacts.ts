import type { Readable } from 'node:stream'
import type { ArchiveLimits, CheckedArchive } from '../../drivers/archives/checked-archive.ts'
import type { AppFolders } from '../../drivers/swarms.ts'
import type { Unpacked } from '../../lib/deploy-protocol.ts'

interface Parts {
  folders: AppFolders
  /** The bytes of an artifact. */
  content: (deployServerId: string, artifactId: string) => Promise<Readable>
  check: (packed: Readable, limits: ArchiveLimits) => CheckedArchive
}

const gibibyte = 1024 ** 3
const limits: ArchiveLimits = {
  entries: 100_000,
  bytes: 4 * gibibyte,
  // Text seldom packs better than 50 times.
  ratio: 200,
  ratio_from_bytes: 16 * 1024 ** 2,
}

/** Activities for artifacts, on the host of a worker. All are idempotent. */
export const makeArtifactsOnHost = ({ folders, content, check }: Parts) => ({
  /** Checks the archive and puts its files into the worker’s folder. Throws ArchiveRefused, MachineDiskFull. */
  async unpackArtifactOnHost(
    deployServerId: string,
    artifactId: string,
    machineId: string,
    name: string,
  ): Promise<Unpacked> {
    const { files, found } = check(await content(deployServerId, artifactId), limits)
    const { finish } = await folders.put(machineId, name, artifactId, files)
    return { path: await finish(), ...found() }
  },

  removeArtifactOnHost: (machineId: string, name: string, artifactId: string): Promise<void> =>
    folders.remove(machineId, name, artifactId),
})
