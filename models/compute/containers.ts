import mongoose, { Schema } from 'mongoose'
import type { ContainerSpec } from '../../drivers/containers.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { states } from '../states.ts'

/** Which verbs are allowed when. The table is the only place that knows. */
export const containerStates = states(
  {
    creating: {},
    running: { stop: 'stopping', update: 'updating', repair: 'starting', delete: 'deleting' },
    stopped: { start: 'starting', update: 'updating', delete: 'deleting' },
    error: { start: 'starting', update: 'updating', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

type Spec = Omit<ContainerSpec, 'id' | 'tenant_id' | 'name'>

/** Where a published port is reached; nulls until it is. */
export interface Binding {
  container_port: number
  protocol: 'tcp' | 'udp'
  host_address: string | null
  host_port: number | null
}

export interface ContainerDocument extends ResourceDocument, Spec {
  /** Sealed: `sealConfigVars`. */
  config_vars_sealed: string
  desired_state: 'running' | 'stopped'
  host_id: string | null
  /** An operator's choice of host, kept. */
  wanted_host_id: string | null
  /** What the published ports (`ports`, as asked for) have become. */
  bindings: Binding[]
  /** Names of the fields that take effect at the next start. */
  pending_changes: string[]
  exit_code: number | null
  restart_count: number
  started_at: Date | null
  health: 'none' | 'starting' | 'healthy' | 'unhealthy'
}

const { Mixed } = Schema.Types
const schema = resourceSchema<ContainerDocument>(
  {
    image: { type: String, required: true },
    image_digest: { type: String, default: null },
    command: { type: [String], default: [] },
    entrypoint: { type: [String], default: [] },
    cpu_cores: { type: Number, required: true },
    memory_mib: { type: Number, required: true },
    restart_policy: { type: String, required: true },
    ports: { type: [Mixed], default: [] },
    log_cap_mib: { type: Number, required: true },
    health_check: { type: Mixed, default: null },
    config_vars_sealed: { type: String, required: true },
    desired_state: { type: String, required: true, enum: ['running', 'stopped'] },
    host_id: { type: String, default: null },
    wanted_host_id: { type: String, default: null },
    bindings: { type: [Mixed], default: [] },
    pending_changes: { type: [String], default: [] },
    exit_code: { type: Number, default: null },
    restart_count: { type: Number, default: 0 },
    started_at: { type: Date, default: null },
    health: { type: String, default: 'none' },
  },
  containerStates,
  'containers',
)
schema.index({ host_id: 1 })

export const Container = mongoose.model<ContainerDocument>('Container', schema)
export const containerResource = defineResource('container', Container, containerStates)

const configVarsOf = (tenantId: string): string => `containers.config_vars:${tenantId}`
export const sealConfigVars = (tenantId: string, vars: Record<string, string>): string =>
  sealSecret(vars, configVarsOf(tenantId))
export const openConfigVars = (container: ContainerDocument): Record<string, string> =>
  unsealSecret(container.config_vars_sealed, configVarsOf(container.tenant_id))

/** What the engine needs to know; config vars are fetched by the host itself. */
export const specOf = (container: ContainerDocument): ContainerSpec => ({
  id: container._id,
  tenant_id: container.tenant_id,
  name: container.name,
  image: container.image,
  image_digest: container.image_digest,
  command: container.command,
  entrypoint: container.entrypoint,
  cpu_cores: container.cpu_cores,
  memory_mib: container.memory_mib,
  restart_policy: container.restart_policy,
  ports: container.ports.map((port) => ({ ...port, kept_port: keptPort(container.bindings, port) })),
  log_cap_mib: container.log_cap_mib,
  health_check: container.health_check,
})

const keptPort = (
  bindings: Binding[],
  { container_port, protocol }: ContainerSpec['ports'][number],
): number | null =>
  bindings.find((bound) => bound.container_port === container_port && bound.protocol === protocol)
    ?.host_port ?? null
