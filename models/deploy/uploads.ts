import { newId } from '../../lib/ids.ts'
import { StateConflict } from '../../lib/problem.ts'
import { type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { hashToken, newToken } from '../secrets.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Artifact, type ArtifactDocument, artifactResource, makeRoom, untouched } from './artifacts.ts'
import { deployServerResource } from './deploy-servers.ts'

// Archives that are sent in parts. The operation of their artifact waits for them, so that its end, whatever it is, leaves
// nothing of them.

const tokenKind = 'kup'
const keptMs = 24 * 3_600_000

/** Bytes of one archive. */
export const uploadAtMost = 2 * 1024 ** 3

/**
 * Accepts an archive that is to be sent in parts, with the token for it. Throws NotFound, StateConflict before the deploy
 * server is ready, `too_many_uploads`.
 */
export async function acceptUpload(
  by: By,
  deployServerId: string,
  { folder, size_bytes, sha256 }: Pick<ArtifactDocument, 'folder' | 'size_bytes' | 'sha256'>,
): Promise<Accepted<ArtifactDocument> & { token: string }> {
  const token = newToken(tokenKind)
  const accepted = await transaction(async () => {
    const { status } = await lockParent(deployServerResource, by.tenant_id, deployServerId)
    if (status === 'creating') throw new StateConflict('push an artifact', status)
    await makeRoom({ tenant_id: by.tenant_id, deploy_server_id: deployServerId })
    const expires_at = new Date(Date.now() + keptMs)
    return create(by, artifactResource, {
      input: { upload: true },
      fields: {
        name: `${folder.slice(0, 50)}-${newId().slice(-12)}`,
        deploy_server_id: deployServerId,
        folder,
        sha256,
        size_bytes,
        blob: null,
        ...untouched,
        upload: { token_hash: hashToken(token), expires_at, whole: false },
      },
    })
  }, by.tenant_id)
  return { ...accepted, token }
}

type Upload = ArtifactDocument & { upload: NonNullable<ArtifactDocument['upload']> }

/** The artifact of this token. Null: there is none. */
export async function findUpload(_id: string, token: string): Promise<Upload | null> {
  const found = await Artifact.findOne({ _id, 'upload.token_hash': hashToken(token) })
    .setOptions(everyTenant)
    .lean()
  return found?.upload ? { ...found, upload: found.upload } : null
}

/** Whether it was cancelled, or not sent in time. */
export const isOver = ({ upload, status }: Upload): boolean =>
  !upload.whole && (status !== 'creating' || upload.expires_at <= new Date())

/** Notes that the archive is whole. Idempotent. */
export async function noteWhole({ _id, tenant_id }: Pick<Upload, '_id' | 'tenant_id'>): Promise<void> {
  await Artifact.updateOne({ _id, tenant_id, status: 'creating' }, { $set: { 'upload.whole': true } })
}
