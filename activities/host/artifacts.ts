import type { Readable } from 'node:stream'
import type { ArchiveLimits, CheckedArchive } from '../../drivers/archives/checked-archive.ts'
import type { AppFolders, Uploads } from '../../drivers/swarms.ts'
import { ArchiveRefused } from '../../drivers/errors.ts'
import type { Unpacked } from '../../lib/deploy-protocol.ts'

interface Parts {
  folders: AppFolders
  uploads: Uploads
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
export const makeArtifactsOnHost = ({ folders, uploads, content, check }: Parts) => ({
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

  /**
   * Does the same with an archive that was sent in parts, after a look at its digest. Returns that too. Throws
   * ArchiveRefused, MachineDiskFull.
   */
  async unpackUploadOnHost(
    artifactId: string,
    machineId: string,
    name: string,
    sha256: string | null,
  ): Promise<Unpacked & { sha256: string }> {
    const digest = await uploads.digest(machineId, artifactId)
    if (digest === '') throw new ArchiveRefused('it was lost with its worker; send it again')
    if (sha256 !== null && digest !== sha256) throw new ArchiveRefused(`its SHA-256 is ${digest}`)
    const { files, found } = check(await uploads.read(machineId, artifactId), limits)
    const { finish } = await folders.put(machineId, name, artifactId, files)
    return { path: await finish(), ...found(), sha256: digest }
  },

  removeUploadOnHost: (machineId: string, artifactId: string): Promise<void> =>
    uploads.remove(machineId, artifactId),

  removeArtifactOnHost: (machineId: string, name: string, artifactId: string): Promise<void> =>
    folders.remove(machineId, name, artifactId),
})
