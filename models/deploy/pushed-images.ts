import { type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { builder } from './artifacts.ts'
import { Build, type BuildDocument, buildResource } from './builds.ts'
import { deployable } from './built-images.ts'
import { type DeployServerDocument, deployServerResource } from './deploy-servers.ts'

// Images that came by `docker push`. Each has a record as a build has, without an artifact, so that deployments find it and
// it is kept by the same rules.

export interface PushedImage extends Pick<BuildDocument, 'image' | 'tag' | 'size_bytes'> {
  /** Of the record: the registry has the image under it already. */
  id: string
  digest: string
  parts: string[]
}

/** Accepts an image that is in the registry. Throws NotFound, StateConflict while the deploy server is being deleted. */
export const acceptPush = (
  by: By,
  deploy_server_id: string,
  { id, image, tag, digest, parts, size_bytes }: PushedImage,
): Promise<Accepted<BuildDocument>> =>
  transaction(async () => {
    await lockParent(deployServerResource, by.tenant_id, deploy_server_id)
    const now = new Date()
    return create(by, buildResource, {
      id,
      input: { deploy_server_id, pushed: true },
      fields: {
        name: `${image.slice(-40)}-${id.slice(-12)}`,
        tags: {},
        deploy_server_id,
        artifact_id: null,
        folder: null,
        image,
        tag,
        dockerfile: null,
        target: null,
        build_args: {},
        timeout_sec: 0,
        secret_names: [],
        secrets_sealed: '-',
        requested_by: by.id,
        started_at: now,
        ended_at: now,
        generated: null,
        digest,
        parts,
        size_bytes,
        image_state: 'kept',
        image_on: [builder],
        last_taken_at: null,
      },
    })
  }, by.tenant_id)

type Server = Pick<DeployServerDocument, '_id' | 'tenant_id'>

const keptIn = ({ _id, tenant_id }: Server, image: string) => ({
  deploy_server_id: _id,
  tenant_id,
  image,
  image_state: 'kept' as const,
  digest: { $ne: null },
  ...deployable,
})

/** The digest of an image’s tag, as a deployment would take it now. Null if there is none. */
export async function digestOfTag(server: Server, image: string, tag: string): Promise<string | null> {
  const newest = await Build.findOne({ ...keptIn(server, image), tag }, { digest: 1 })
    .sort({ created_at: -1 })
    .lean()
  return newest?.digest ?? null
}

/** The tags of an image, in order. */
export const tagsOfImage = async (server: Server, image: string): Promise<string[]> =>
  (await Build.distinct('tag', keptIn(server, image))).toSorted()
