import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { defineResource, mine, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import type { RegistryNode } from './registries.ts'
import { envsContext, type Release, releaseFields } from './applications.ts'

export const deploymentStates = states({
  creating: {},
  succeeded: {},
  failed: {},
  cancelled: {},
  // Something of it could not be undone.
  error: {},
})

/** Why a deployment was made. */
export const deploymentKinds = ['deploy', 'promote', 'restart', 'stop', 'move'] as const
export type DeploymentKind = (typeof deploymentKinds)[number]

/** Where one replica runs. */
export interface Place {
  /** The id of its service in the Swarm. */
  service_id: string
  /** The name of its worker, and the worker's machine. */
  node: string
  machine_id: string
  ip_address: string
  /** The worker's port that leads to it. Null without a port. */
  machine_port: number | null
}

/** One release of an application: from its acceptance to the moment at which it alone serves, or has failed. */
export interface DeploymentDocument extends ResourceDocument<StateOf<typeof deploymentStates>>, Release {
  deploy_server_id: string
  app_id: string
  /** Counts the deployments of the application, from 1. */
  number: number
  kind: DeploymentKind
  /** The deployment of which this one repeats the release, for `promote`. */
  of_id: string | null
  /** What the caller says of it. */
  message: string | null
  /** The commit of which it is a release, as the caller says. */
  commit: string | null
  requested_by: string | null
  envs_sealed: string
  /** The build that has made the image. Null: it is from another registry. */
  built: { build_id: string; digest: string } | null
  /** The node from whose registry its workers pull the image, once it has places. Not there: w1. */
  pulls_from?: RegistryNode
  /** The storages that it mounts. */
  mounts: { id: string; mount_path: string }[]
  places: Place[]
  /** A newer deployment took its place before it had its turn. */
  superseded: boolean
  /** When each phase began. */
  phases: { phase: string; at: Date }[]
  /** What it did, for its readers. */
  log: { time: Date; line: string }[]
  /** How many lines it has written. */
  log_lines: number
  ended_at: Date | null
}

const { Mixed } = Schema.Types
const schema = resourceSchema<DeploymentDocument>(
  {
    deploy_server_id: { type: String, required: true },
    app_id: { type: String, required: true },
    number: { type: Number, required: true },
    kind: { type: String, required: true, enum: deploymentKinds },
    of_id: { type: String, default: null },
    message: { type: String, default: null },
    commit: { type: String, default: null },
    requested_by: { type: String, default: null },
    ...releaseFields,
    envs_sealed: { type: String, required: true },
    built: { type: Mixed, default: null },
    pulls_from: String,
    mounts: { type: [Mixed], default: [] },
    places: { type: [Mixed], default: [] },
    superseded: { type: Boolean, default: false },
    phases: { type: [Mixed], default: [] },
    log: { type: [Mixed], default: [] },
    log_lines: { type: Number, default: 0 },
    ended_at: { type: Date, default: null },
  },
  deploymentStates,
  'deployments',
  { within: 'app_id' },
)
schema.index({ app_id: 1, number: -1 })
schema.index({ deploy_server_id: 1, created_at: -1 })
export const Deployment = mongoose.model<DeploymentDocument>('Deployment', schema)
export const deploymentResource = defineResource('deployment', Deployment, deploymentStates)
sealedField(Deployment, 'envs_sealed', ({ tenant_id }) => envsContext(tenant_id))

/** The deployment of this deploy server of the caller's tenant. Throws NotFound. */
export async function deploymentOf(
  caller: { tenant_id: string },
  deployServerId: string,
  id: string,
): Promise<DeploymentDocument> {
  const deployment = await mine(deploymentResource, caller, id)
  if (deployment.deploy_server_id !== deployServerId) throw new NotFound('deployment')
  return deployment
}

export const findDeployments = (ids: string[]): Promise<DeploymentDocument[]> =>
  Deployment.find({ _id: { $in: ids } })
    .setOptions(everyTenant)
    .lean()

/** Adds lines to the log of a deployment, which keeps the last 500. */
export async function logDeployment(_id: string, ...lines: string[]): Promise<void> {
  const time = new Date()
  const entries = lines.map((line) => ({ time, line }))
  const add = { $push: { log: { $each: entries, $slice: -500 } }, $inc: { log_lines: lines.length } }
  await Deployment.updateOne({ _id }, add).setOptions(everyTenant)
}
