import { InvalidInput, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { lockParent } from '../parents.ts'
import { Application } from './applications.ts'
import { Build, type BuildDocument } from './builds.ts'
import { Deployment, type DeploymentDocument, type DeploymentKind } from './deployments.ts'
import { type DeployServerDocument, deployServerResource } from './deploy-servers.ts'
import { trimBuilds } from './old-builds.ts'
import { Service } from './services.ts'

// The images that builds have made, and those that were pushed: which one a deployment gets, and how long each is kept.

/** Builds of each image that are kept, beside those that deployments need. */
const keptBuilds = 3
/** Deployments of each application whose images are kept, so that they can be released again. */
const keptDeployments = 10

export type BuiltImage = NonNullable<DeploymentDocument['built']>

/** The source of a deployment: the application’s next release, or the release of an earlier deployment. */
export interface ImageSource {
  tenant_id: string
  deploy_server_id: string
  image: string
  tag: string
  /** Of an earlier deployment: the same image again, whatever its tag is now. */
  built?: DeploymentDocument['built']
  /** Of an earlier deployment. */
  kind?: DeploymentKind
}

/** A pushed image is whole before its operation begins, which removes others. */
export const deployable = { $or: [{ status: 'succeeded' as const }, { artifact_id: null }] }

/**
 * The newest build of an image's tag, for a deployment, which keeps it. Null: the image is from another registry, because no
 * image of its name was built here. Throws `image_removed`, and InvalidInput at `pointer` for another tag of a name that was
 * built here: the owner of that name in a public registry could run code among the tenant's applications.
 */
export async function takeImage(
  source: ImageSource,
  { pointer = '/tag' } = {},
): Promise<DeploymentDocument['built']> {
  const { tenant_id, deploy_server_id, image, tag, built, kind } = source
  if (built) return retakeImage(tenant_id, built)
  // A stop has released nothing, so its image was not looked for.
  if (built === null && kind !== 'stop') return null
  const name = { image, deploy_server_id, tenant_id }
  const taken = await take({ ...name, tag, ...deployable })
  if (taken || !(await Build.exists(name))) return taken
  if (await Build.exists({ ...name, tag, digest: { $ne: null }, ...deployable }))
    throw imageRemoved(`The image ${image}:${tag} is no longer kept`)
  const message = `${image}:${tag} was neither built nor pushed here; for an image of Docker Hub, write docker.io/ before its name`
  throw new InvalidInput(422, [{ pointer, message }])
}

/** Takes the image of a build that was taken before. Throws `image_removed`. */
export async function retakeImage(tenant_id: string, { build_id }: BuiltImage): Promise<BuiltImage> {
  const built = await take({ _id: build_id, tenant_id })
  if (built) return built
  throw imageRemoved('The image of that release is no longer kept')
}

const imageRemoved = (detail: string): Problem =>
  new Problem(409, 'image_removed', 'The image was removed', detail)

async function take(its: Partial<BuildDocument>): Promise<BuiltImage | null> {
  const build = await Build.findOneAndUpdate(
    { ...its, image_state: 'kept' },
    { $set: { last_taken_at: new Date() } },
    { sort: { created_at: -1 } },
  ).lean()
  return build?.digest ? { build_id: build._id, digest: build.digest } : null
}

/** Decides which images go, and returns all that are to leave the registry. */
export const imagesToRemove = ({
  _id: deploy_server_id,
  tenant_id,
}: DeployServerDocument): Promise<{
  leaving: BuildDocument[]
  kept_digests: string[]
  kept_ids: string[]
  open: BuildDocument[]
}> =>
  transaction(async () => {
    const its = { tenant_id, deploy_server_id }
    await lockParent(deployServerResource, tenant_id, deploy_server_id)
    const kept = await Build.find({ ...its, image_state: 'kept' })
      .sort({ created_at: -1 })
      .lean()
    const needed = await neededBuilds(its)
    const extra = [...Map.groupBy(kept, ({ image }) => image).values()].flatMap((builds) => {
      // The build that has just pushed its image is still under way.
      const good = builds.filter(
        ({ status, operation_id, artifact_id }) =>
          status === 'succeeded' || operation_id !== null || artifact_id === null,
      )
      const newest = new Set(good.slice(0, keptBuilds).map(({ _id }) => _id))
      return builds.filter(
        ({ _id, operation_id }) => operation_id === null && !newest.has(_id) && !needed.has(_id),
      )
    })
    for (const { _id } of extra)
      await Build.updateOne({ _id, tenant_id }, { $set: { image_state: 'leaving' } })
    const leaving = await Build.find({ ...its, image_state: 'leaving', operation_id: null }).lean()
    const staying = await Build.find({ ...its, image_state: 'kept' }, { digest: 1, parts: 1 }).lean()
    const open = await Build.find({ ...its, operation_id: { $ne: null } }).lean()
    const digests = staying.flatMap(({ digest, parts = [] }) => [...(digest ? [digest] : []), ...parts])
    const kept_ids = staying.map(({ _id }) => _id)
    return { leaving, open, kept_digests: [...new Set(digests)], kept_ids }
  }, deploy_server_id)

/** The builds whose images run, or can be released again. */
async function neededBuilds(its: { tenant_id: string; deploy_server_id: string }): Promise<Set<string>> {
  const built = { ...its, built: { $ne: null } }
  const applications = await Application.find(its).lean()
  const lists = applications.map(({ _id, current_id, wanted_ids }) =>
    Promise.all([
      Deployment.find({ ...built, app_id: _id }, { built: 1 })
        .sort({ number: -1 })
        .limit(keptDeployments)
        .lean(),
      Deployment.find({ ...built, _id: { $in: [...wanted_ids, current_id ?? ''] } }, { built: 1 }).lean(),
      Deployment.find({ ...built, app_id: _id, operation_id: { $ne: null } }, { built: 1 }).lean(),
    ]),
  )
  const ofServices = await Service.distinct('builds', its)
  return new Set([
    ...(await Promise.all(lists)).flat(2).flatMap((one) => one.built?.build_id ?? []),
    ...ofServices,
  ])
}

/** Notes that these images have left, and removes the oldest records. Idempotent. */
export async function noteImagesGone(server: DeployServerDocument, ids: string[]): Promise<void> {
  const leaving = { _id: { $in: ids }, tenant_id: server.tenant_id, image_state: 'leaving' as const }
  await Build.updateMany(leaving, { $set: { image_state: 'gone', image_on: [] } })
  await trimBuilds(server)
}
