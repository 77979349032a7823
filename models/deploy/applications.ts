import mongoose, { Schema } from 'mongoose'
import { defineResource, mine, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import { NotFound } from '../../lib/problem.ts'
import { deployServerResource } from './deploy-servers.ts'

/** The states of the record. What the application does is computed from its deployments (application-status.ts). */
export const applicationStates = states(
  { active: { delete: 'deleting' }, error: { delete: 'deleting' } },
  { final: ['delete'] },
)

/** How the platform finds that a replica serves. */
export interface ServingCheck {
  /** A GET of this path must answer with 2xx or 3xx. Null: a connection is enough. */
  path: string | null
  /** How long a new release may take until it serves. */
  within_sec: number
}

/** What a release runs. A deployment keeps a copy. */
export interface Release {
  /** Without its tag. */
  image: string
  tag: string
  /** The port on which it listens. Null: it serves nothing. */
  port: number | null
  /** Empty: the image's own. */
  command: string[]
  replicas: number
  cpu_cores: number
  memory_mib: number
  health_check: ServingCheck
  /** How long a replica may take to end. */
  stop_grace_sec: number
}

/** An application of a deploy server: its next release, and which one serves. */
export interface ApplicationDocument extends ResourceDocument<StateOf<typeof applicationStates>>, Release {
  deploy_server_id: string
  /** Sealed by `sealEnvs`. */
  envs_sealed: string
  /** The route of the deploy server's load balancer; null before the first release serves. */
  route_id: string | null
  /** The number of its last deployment. */
  last_number: number
  /** The deployment whose release serves. Null: none, or it was stopped. */
  current_id: string | null
  /** The deployment that has its turn. */
  turn_id: string | null
  /** The deployments whose services are to run: the current one, and during a turn the next one too. */
  wanted_ids: string[]
  stopped: boolean
  /** The worker that has its volumes. Null: it has none yet. */
  volume_node: string | null
}

const { Mixed } = Schema.Types
export const releaseFields = {
  image: { type: String, required: true },
  tag: { type: String, required: true },
  port: { type: Number, default: null },
  command: { type: [String], default: [] },
  replicas: { type: Number, required: true },
  cpu_cores: { type: Number, required: true },
  memory_mib: { type: Number, required: true },
  health_check: { type: Mixed, required: true },
  stop_grace_sec: { type: Number, required: true },
}

const schema = resourceSchema<ApplicationDocument>(
  {
    deploy_server_id: { type: String, required: true },
    ...releaseFields,
    envs_sealed: { type: String, required: true },
    route_id: { type: String, default: null },
    last_number: { type: Number, default: 0 },
    current_id: { type: String, default: null },
    turn_id: { type: String, default: null },
    wanted_ids: { type: [String], default: [] },
    stopped: { type: Boolean, default: false },
    volume_node: { type: String, default: null },
  },
  applicationStates,
  'applications',
  { within: 'deploy_server_id' },
)
schema.index({ deploy_server_id: 1 })
export const Application = mongoose.model<ApplicationDocument>('Application', schema)
export const applicationResource = defineResource('application', Application, applicationStates)

const contextOf = (tenantId: string): string => `applications.envs:${tenantId}`
sealedField(Application, 'envs_sealed', ({ tenant_id }) => contextOf(tenant_id))

export type Envs = Record<string, string>
/** Seals environment variables for a field of an application or a deployment. */
export const sealEnvs = (tenantId: string, envs: Envs): Promise<string> =>
  sealSecret(envs, contextOf(tenantId))
export const openEnvs = ({
  envs_sealed,
  tenant_id,
}: {
  envs_sealed: string
  tenant_id: string
}): Promise<Envs> => unsealSecret<Envs>(envs_sealed, contextOf(tenant_id))
export const envsContext = contextOf

/** The application of this deploy server of the caller's tenant. Throws NotFound. */
export async function applicationOf(
  caller: { tenant_id: string },
  deployServerId: string,
  id: string,
): Promise<ApplicationDocument> {
  await mine(deployServerResource, caller, deployServerId)
  const application = await mine(applicationResource, caller, id)
  if (application.deploy_server_id !== deployServerId) throw new NotFound('application')
  return application
}

/** The application without a check of its tenant, for activities. Null if it is gone. */
export const findApplication = (id: string): Promise<ApplicationDocument | null> =>
  Application.findById(id).setOptions(everyTenant).lean()
