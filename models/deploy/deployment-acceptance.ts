import { needFewVars } from '../../lib/config-vars.ts'
import { InvalidInput, NotFound, StateConflict } from '../../lib/problem.ts'
import { accepts, type By, create } from '../acceptance.ts'
import { needAllowedImage } from '../compute/images.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { mine, named } from '../resources.ts'
import {
  Application,
  type ApplicationDocument,
  applicationResource,
  type Envs,
  openEnvs,
  type Release,
  sealEnvs,
} from './applications.ts'
import {
  Deployment,
  type DeploymentDocument,
  type DeploymentKind,
  deploymentResource,
} from './deployments.ts'
import { deployServerResource } from './deploy-servers.ts'
import { type ImageSource, takeImage } from './built-images.ts'
import { mountsOf } from './storages.ts'

// The acceptance rules for applications and their deployments.

export interface NewApplication extends Release {
  name: string
  tags: Record<string, string>
  envs: Envs
}

const releaseOf = ({
  image,
  tag,
  port,
  command,
  replicas,
  cpu_cores,
  memory_mib,
  health_check,
  stop_grace_sec,
}: Release): Release => ({
  image,
  tag,
  port,
  command,
  replicas,
  cpu_cores,
  memory_mib,
  health_check,
  stop_grace_sec,
})

/**
 * Makes an application; with `deploy`, accepts its first deployment in the same transaction. Throws NotFound,
 * StateConflict unless the deploy server is ready or changing, NameTaken.
 */
export const createApplication = (
  by: By,
  deployServerId: string,
  { envs, ...fields }: NewApplication,
  deploy: boolean,
): Promise<{ application: ApplicationDocument; deployment: Accepted<DeploymentDocument> | null }> =>
  named('application', fields.name, () =>
    transaction(async () => {
      needAllowedImage(fields.image)
      const { tenant_id } = by
      const server = await lockParent(deployServerResource, tenant_id, deployServerId)
      if (server.status === 'creating') throw new StateConflict('create an application', server.status)
      const envs_sealed = await sealEnvs(tenant_id, envs)
      const its = { tenant_id, deploy_server_id: deployServerId, envs_sealed, status: 'active' }
      const application = (await new Application({ ...fields, ...its }).save()).toObject()
      const asked = { app_id: application._id, kind: 'deploy', message: null } as const
      return { application, deployment: deploy ? await acceptDeployment(by, asked) : null }
    }, by.tenant_id),
  )

export type ApplicationChanges = {
  [Field in keyof Release | 'tags']?: (Release & ApplicationDocument)[Field] | undefined
}

/** Changes what the next deployment releases. Throws NotFound. */
export async function changeApplication(
  { _id, tenant_id }: ApplicationDocument,
  changes: ApplicationChanges,
): Promise<ApplicationDocument> {
  needAllowedImage(changes.image)
  const set = Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined))
  const changed = await Application.findOneAndUpdate(
    { _id, tenant_id, status: 'active' },
    { $set: set },
    { returnDocument: 'after' },
  ).lean()
  if (!changed) throw new NotFound('application')
  return changed
}

/**
 * Sets environment variables of the next deployment, and keeps the others. Returns them all. Throws NotFound, and InvalidInput
 * if they are too many together.
 */
export const setEnvs = (application: ApplicationDocument, set: Envs): Promise<Envs> =>
  changeEnvs(application, (envs) => {
    const all = { ...envs, ...set }
    needFewVars(all)
    return all
  })

/** Removes an environment variable of the next deployment. Throws NotFound. */
export const removeEnv = (application: ApplicationDocument, key: string): Promise<Envs> =>
  changeEnvs(application, (envs) => {
    if (!Object.hasOwn(envs, key)) throw new NotFound('environment variable')
    return Object.fromEntries(Object.entries(envs).filter(([name]) => name !== key))
  })

const changeEnvs = ({ _id, tenant_id }: ApplicationDocument, change: (envs: Envs) => Envs): Promise<Envs> =>
  transaction(async () => {
    const application = await Application.findOne({ _id, tenant_id, status: 'active' }).lean()
    if (!application) throw new NotFound('application')
    const envs = change(await openEnvs(application))
    const envs_sealed = await sealEnvs(tenant_id, envs)
    await Application.updateOne({ _id, tenant_id }, { $set: { envs_sealed } })
    return envs
  }, _id)

export interface AskedDeployment {
  app_id: string
  kind: DeploymentKind
  message: string | null
  /** Default: that of the release that it repeats. */
  commit?: string | null
  /** Also the application's tag from now on. */
  tag?: string | undefined
  /** The deployment whose release and environment are taken, for `promote`. */
  of_id?: string
}

/**
 * Accepts a deployment. A newer one takes the place of those that wait for their turn. Throws NotFound, InvalidInput,
 * StateConflict while the application is being deleted or if it has nothing to restart or move.
 */
export const acceptDeployment = (by: By, asked: AskedDeployment): Promise<Accepted<DeploymentDocument>> =>
  transaction(async () => {
    const { tenant_id } = by
    const { app_id, kind, message, tag, of_id = null } = asked
    const changes = tag === undefined ? {} : { $set: { tag } }
    const application = await Application.findOneAndUpdate(
      { _id: app_id, tenant_id, status: 'active' },
      { ...changes, $inc: { last_number: 1 } },
      { returnDocument: 'after' },
    ).lean()
    if (!application) {
      const { status } = await mine(applicationResource, by, app_id)
      throw new StateConflict(kind, status)
    }
    const source = await sourceOf(application, kind, of_id)
    return create(by, deploymentResource, {
      fields: {
        name: `${application.name}-${application.last_number}`,
        tags: {},
        deploy_server_id: application.deploy_server_id,
        app_id,
        number: application.last_number,
        kind,
        of_id,
        message,
        commit: asked.commit ?? source.commit ?? null,
        requested_by: by.id,
        ...(await takenFrom(source, application, kind)),
        places: [],
        superseded: false,
        phases: [{ phase: 'queued', at: new Date() }],
        log: [],
        log_lines: 0,
        ended_at: null,
      },
    })
  }, by.tenant_id)

type Source = Release & ImageSource & { envs_sealed: string; commit?: string | null }

/** What a deployment has of its source. Throws `image_removed`. */
const takenFrom = async (source: Source, application: ApplicationDocument, kind: DeploymentKind) => ({
  ...releaseOf(source),
  // A restart takes the present environment: that is what people restart for.
  envs_sealed: kind === 'restart' ? application.envs_sealed : source.envs_sealed,
  built: kind === 'stop' ? null : await takeImage(source),
  mounts: await mountsOf(application),
})

/**
 * Has a restart or a move repeat what serves now, which may be another release than when it was accepted. False if nothing
 * serves any more. Throws `image_removed`.
 */
export async function repeatPresent(
  { _id, tenant_id, app_id, kind }: DeploymentDocument,
  application: ApplicationDocument,
): Promise<boolean> {
  const { current_id } = application
  const source = current_id && (await Deployment.findOne({ _id: current_id, app_id, tenant_id }).lean())
  if (!source) return false
  const taken = { ...(await takenFrom(source, application, kind)), commit: source.commit }
  await Deployment.updateOne({ _id, tenant_id }, { $set: taken })
  return true
}

/** What a deployment releases: the application's next release, or that of another deployment. */
async function sourceOf(
  application: ApplicationDocument,
  kind: DeploymentKind,
  of_id: string | null,
): Promise<Source> {
  const { _id: app_id, tenant_id, current_id } = application
  if (kind === 'deploy' || kind === 'stop') return application
  const id = kind === 'promote' ? of_id : current_id
  const source = id === null ? null : await Deployment.findOne({ _id: id, app_id, tenant_id }).lean()
  if (source) return source
  if (kind === 'promote')
    throw new InvalidInput(422, [
      { pointer: '/deployment_id', message: 'no such deployment of the application' },
    ])
  throw new StateConflict(kind, 'no release serves')
}

// What has begun to serve, or to stop, has nothing to go back to.
deploymentResource.mayCancel = async ({ _id, tenant_id }) => {
  if (await Application.exists({ current_id: _id, tenant_id })) throw new StateConflict('cancel', 'serving')
  if (await Deployment.exists({ _id, tenant_id, 'phases.phase': 'stopping' }))
    throw new StateConflict('cancel', 'stopping')
}

accepts(deploymentResource, { create: acceptDeployment })
