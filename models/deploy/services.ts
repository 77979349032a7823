import { createHash } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { defineResource, mine, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import type { ComposePlan } from './compose/plan.ts'
import { deployServerResource } from './deploy-servers.ts'
import type { RegistryNode } from './registries.ts'

export const serviceStates = states(
  {
    creating: {},
    running: { stop: 'stopping', restart: 'restarting', update: 'updating', delete: 'deleting' },
    stopped: { start: 'starting', update: 'updating', delete: 'deleting' },
    error: {
      start: 'starting',
      restart: 'restarting',
      stop: 'stopping',
      update: 'updating',
      delete: 'deleting',
    },
  },
  { supersede: ['delete'], final: ['stop', 'delete'] },
)

/** What a service is made from. Sealed: people write passwords into compose files. */
export interface ServiceRevision {
  text: string
  /** Given by people. */
  envs: Record<string, string>
  /** Generated once, by the names of variables. */
  generated: Record<string, string>
  plan: ComposePlan
}

/** A container of a service: what the next start of its task uses, and what its host last reported. */
export interface ServiceContainer {
  name: string
  /** The id of its Swarm service. */
  service_id: string
  image: string
  memory_mib: number
  /** Of the worker. `host`: the first part of its URL's host name. */
  ports: { port: number; machine_port: number; host: string }[]
  /** Whether it may end for good, as a job does. */
  is_job: boolean
  /** The node from whose registry its worker pulls its image, if a build has made it. */
  pulls_from?: RegistryNode
  /** What its host has told last. */
  health: 'none' | 'starting' | 'healthy' | 'unhealthy' | null
  seen_at: Date | null
  ended: { exit_code: number; at: Date } | null
}

/** A service of a deploy server: containers that belong together, from a compose file. They are all on one worker. */
export interface ServiceDocument extends ResourceDocument<StateOf<typeof serviceStates>> {
  deploy_server_id: string
  /** The template that it was made from. Null: a text of the tenant's own. */
  type: string | null
  /** How long its containers may take to start, pulls of images included. */
  within_sec: number
  /** What it is made from now. During a change its containers take over the next one by one. */
  revision_sealed: string
  /** What it is changed to. `-`: nothing. */
  next_sealed: string
  /** What it was before the change under way. `-`: nothing. */
  former_sealed: string
  /** The containers that were to run before that change. Not there: a former release began it. */
  former_wanted?: string[]
  containers: ServiceContainer[]
  /** The containers that are to run: how often each was restarted. */
  wanted: Record<string, number>
  /** Those of its text, and of former ones. */
  volumes: string[]
  /** It took volumes over that are not in `volumes`. The platform cannot tell them from others: only a deletion destroys any. */
  has_unknown_volumes?: true
  /** The builds of the deploy server whose images it runs, or goes back to. */
  builds: string[]
  /** Its worker. Null: it was not placed yet. */
  volume_node: string | null
  /** The names of its routes in the load balancer. */
  routes: string[]
}

const { Mixed } = Schema.Types
const sealed = { type: String, default: '-' }
const schema = resourceSchema<ServiceDocument>(
  {
    deploy_server_id: { type: String, required: true },
    type: { type: String, default: null },
    within_sec: { type: Number, required: true },
    revision_sealed: { type: String, required: true },
    next_sealed: sealed,
    former_sealed: sealed,
    former_wanted: { type: [String], default: undefined },
    containers: { type: [Mixed], default: [] },
    wanted: { type: Mixed, default: {} },
    volumes: { type: [String], default: [] },
    has_unknown_volumes: Boolean,
    builds: { type: [String], default: [] },
    volume_node: { type: String, default: null },
    routes: { type: [String], default: [] },
  },
  serviceStates,
  'services',
  { within: 'deploy_server_id' },
)
schema.index({ deploy_server_id: 1 })
schema.index({ 'containers.service_id': 1 })
export const Service = mongoose.model<ServiceDocument>('Service', schema)
export const serviceResource = defineResource('service', Service, serviceStates)

const contextOf = (tenantId: string): string => `services.revision:${tenantId}`
for (const field of ['revision_sealed', 'next_sealed', 'former_sealed'])
  sealedField(Service, field, ({ tenant_id }) => contextOf(tenant_id))

export const sealRevision = (tenantId: string, revision: ServiceRevision): Promise<string> =>
  sealSecret(revision, contextOf(tenantId))
export const openRevision = (tenantId: string, value: string): Promise<ServiceRevision> =>
  unsealSecret<ServiceRevision>(value, contextOf(tenantId))

/** The builds whose images a plan has. */
export const buildsOfPlan = ({ containers }: ComposePlan): string[] => [
  ...new Set(containers.flatMap(({ built }) => built?.build_id ?? [])),
]

/**
 * The network of this name in the text, in the Swarm: it takes names of 63 letters, digits, `_` and `-` that end in a letter or a
 * digit.
 */
export function networkOfService(serviceId: string, network: string): string {
  const fits = network.length <= 18 && /^[\w-]*[A-Za-z0-9]$/.test(network)
  return `keelson-${serviceId}-${fits ? network : createHash('sha256').update(network).digest('hex').slice(0, 18)}`
}

/** The volume of this name in the text, on the service's worker. */
export const volumeOfService = (serviceId: string, volume: string): string => `keelson-${serviceId}-${volume}`

/** The service of this deploy server of the caller's tenant. Throws NotFound. */
export async function serviceOf(
  caller: { tenant_id: string },
  deployServerId: string,
  id: string,
): Promise<ServiceDocument> {
  await mine(deployServerResource, caller, deployServerId)
  const service = await mine(serviceResource, caller, id)
  if (service.deploy_server_id !== deployServerId) throw new NotFound('service')
  return service
}

/** The service without a check of its tenant, for activities. Null if it is gone. */
export const findService = (id: string): Promise<ServiceDocument | null> =>
  Service.findById(id).setOptions(everyTenant).lean()
