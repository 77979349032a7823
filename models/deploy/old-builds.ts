import { NotFound, StateConflict } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { Operation } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { forgetLog, logBytes } from './build-logs.ts'
import { Build, type BuildDocument } from './builds.ts'
import { type DeployServerDocument, deployServerResource } from './deploy-servers.ts'

// The records of builds that have ended, with their logs. Tenants cannot delete them, and a failed build holds no quota: the
// platform trims them, so that no tenant fills the database.

/** Records of builds without an image that are kept, with their logs. */
const keptRecords = 200
/**
 * For the logs of a deploy server's builds: 200 logs have more than 1 MiB each, although a log of 10,000 long lines has
 * 20 MB. MongoDB compresses them.
 */
const keptLogBytes = 256 * 1024 ** 2
/** Builds with kept images are not counted: this is the most logs of them, however short. */
const keptLogs = 1_000
/** Each build adds one record and one log, and removes up to so many, so that a call is short. */
const atOnce = 20

type Server = Pick<DeployServerDocument, '_id' | 'tenant_id'>
type Named = Pick<BuildDocument, '_id' | 'tenant_id' | 'deploy_server_id' | 'image' | 'digest'>

/**
 * Removes the oldest records of builds that have ended without an image that is kept, and the oldest logs. What is left
 * over, the next call removes. An image in the registry that has lost its record so is removed with the next images that go.
 */
export async function trimBuilds({ _id: deploy_server_id, tenant_id }: Server): Promise<void> {
  const ended = { tenant_id, deploy_server_id, operation_id: null }
  const old = await Build.find(
    { ...ended, image_state: { $ne: 'kept' }, name_only: { $ne: true } },
    { tenant_id: 1, deploy_server_id: 1, image: 1, digest: 1 },
  )
    .sort({ created_at: -1 })
    .skip(keptRecords)
    .limit(atOnce)
    .lean()
  for (const build of old) await forgetBuild(build)
  await trimLogs(ended)
}

/** A log that has ended has a size that stays: it is measured once. */
async function trimLogs(ended: { tenant_id: string; deploy_server_id: string }): Promise<void> {
  const { tenant_id } = ended
  const unmeasured = await Build.find({ ...ended, log_bytes: null }, { tenant_id: 1 })
    .sort({ created_at: -1 })
    .limit(atOnce)
    .lean()
  for (const build of unmeasured) {
    const log_bytes = await logBytes(build)
    await Build.updateOne({ _id: build._id, tenant_id }, { $set: { log_bytes } }, { timestamps: false })
  }
  const logged = await Build.find({ ...ended, log_bytes: { $gt: 0 } }, { tenant_id: 1, log_bytes: 1 })
    .sort({ created_at: -1 })
    .limit(keptLogs + atOnce)
    .lean()
  let bytes = 0
  const surplus = logged.filter(
    ({ log_bytes }, n) => (bytes += log_bytes ?? 0) > keptLogBytes || n >= keptLogs,
  )
  for (const build of surplus.slice(-atOnce)) {
    await forgetLog(build)
    await Build.updateOne({ _id: build._id, tenant_id }, { $set: { log_bytes: 0 } }, { timestamps: false })
  }
}

/** The last image of a name has its record as long as the deploy server: its name is no other registry's (takeImage). */
const isLastOfName = async ({ _id, tenant_id, deploy_server_id, image, digest }: Named): Promise<boolean> =>
  digest !== null &&
  !(await Build.exists({ tenant_id, deploy_server_id, image, digest: { $ne: null }, _id: { $ne: _id } }))

async function forgetBuild(build: Named): Promise<void> {
  const { _id, tenant_id, deploy_server_id } = build
  await forgetLog(build)
  try {
    await transaction(async () => {
      // Of two calls at once, the second sees which names the first has left.
      await lockParent(deployServerResource, tenant_id, deploy_server_id)
      await Operation.deleteOne({ resource_id: _id, tenant_id })
      const bare = { name_only: true as const, log_bytes: 0, build_args: {} }
      if (await isLastOfName(build)) await Build.updateOne({ _id, tenant_id }, { $set: bare })
      else await Build.deleteOne({ _id, tenant_id })
    }, deploy_server_id)
  } catch (error) {
    // The deploy server is being deleted, with all its builds.
    if (!(error instanceof NotFound || error instanceof StateConflict)) throw error
  }
}

/** Removes the records of a deploy server's builds, with their logs. */
export async function forgetBuilds(tenant_id: string, deploy_server_id: string): Promise<void> {
  for (const { _id } of await Build.find({ tenant_id, deploy_server_id }, { _id: 1 }).lean()) {
    await forgetLog({ _id, tenant_id })
    await transaction(() => Build.deleteOne({ _id, tenant_id }), tenant_id)
  }
}
