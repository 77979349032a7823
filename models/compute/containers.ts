import mongoose, { Schema } from 'mongoose'
import type { ContainerSpec } from '../../drivers/containers.ts'
import { type Binding, unbound } from '../../lib/ports.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { sizeOf } from '../identity/tenants.ts'
import type { Accepted } from '../operations.ts'
import { defineResource, resourceSchema, wholeFeed } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import {
  attaching,
  attachingDatabases,
  defineInstance,
  type InstanceDocument,
  instanceFields,
  type PlacedSpec,
} from './instances.ts'
import { needAllowedImage } from './images.ts'
import { type Changes, instanceVerbs, newborn, type NewInstance, takeForNew } from './instance-acceptance.ts'
import { mustBePublished, withKept } from './ports.ts'
import { resize } from './reservations.ts'

export const containerStates = states(
  {
    creating: {},
    running: {
      stop: 'stopping',
      update: 'updating',
      repair: 'starting',
      reschedule: 'rescheduling',
      delete: 'deleting',
      ...attaching,
      ...attachingDatabases,
    },
    stopped: {
      start: 'starting',
      update: 'updating',
      reschedule: 'rescheduling',
      delete: 'deleting',
      ...attaching,
      ...attachingDatabases,
    },
    error: {
      start: 'starting',
      update: 'updating',
      reschedule: 'rescheduling',
      delete: 'deleting',
      ...attaching,
      ...attachingDatabases,
    },
    // It ran at its host's last report, and may still run. It can be rescheduled to another host.
    unreachable: { reschedule: 'rescheduling', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete', 'detach_database'] },
)

export interface ContainerDocument
  extends InstanceDocument<StateOf<typeof containerStates>>,
    Pick<ContainerSpec, 'command' | 'entrypoint' | 'ports' | 'health_check'> {
  desired_state: 'running' | 'stopped'
  /** It is a machine of a deploy server: it runs an engine of its own. */
  machine: boolean
  /** It is a runner of AI workflows, for the deployment that manages it: it has no network. */
  runner: boolean
  /** What it may write outside its disks. Null: a machine, which keeps its data on a disk. */
  disk_gib: number | null
  /** The host ports assigned to the requested `ports`. */
  bindings: Binding[]
  health: 'none' | 'starting' | 'healthy' | 'unhealthy'
}

const { Mixed } = Schema.Types
const schema = resourceSchema<ContainerDocument>(
  {
    ...instanceFields,
    command: { type: [String], default: [] },
    entrypoint: { type: [String], default: [] },
    ports: { type: [Mixed], default: [] },
    health_check: { type: Mixed, default: null },
    machine: { type: Boolean, default: false },
    runner: { type: Boolean, default: false },
    disk_gib: { type: Number, default: null },
    bindings: { type: [Mixed], default: [] },
    health: { type: String, default: 'none' },
  },
  containerStates,
  'containers',
)
schema.index({ host_id: 1 })

export const Container = mongoose.model<ContainerDocument>('Container', schema)
export const containerResource = defineResource('container', Container, containerStates, { feed: wholeFeed })

/** What a host needs to run a container. */
export type PlacedContainer = ContainerSpec & PlacedSpec

const specOf = (container: ContainerDocument): PlacedContainer => ({
  id: container._id,
  tenant_id: container.tenant_id,
  name: container.name,
  image: container.image,
  image_digest: container.image_digest,
  command: container.command,
  entrypoint: container.entrypoint,
  cpu_cores: container.cpu_cores,
  memory_mib: container.memory_mib,
  disk_gib: container.disk_gib,
  restart_policy: container.restart_policy,
  ports: withKept(container.ports, container.bindings),
  log_cap_mib: container.log_cap_mib,
  health_check: container.health_check,
  disks: container.disks,
  machine: container.machine,
  ...(container.runner ? { runner: container.managed_by } : {}),
})

export const containerKind = defineInstance({
  kind: 'container',
  title: 'container',
  model: Container,
  resource: containerResource,
  moves_whole: false,
  live: new Set(['cpu_cores', 'memory_mib', 'disk_gib', 'restart_policy', 'tags', 'name']),
  sizeOf,
  placedAs: ({ machine, runner }) => (runner ? 'runner' : machine ? 'machine' : 'container'),
  specOf,
})
export const { sealConfigVars, openConfigVars } = containerKind

type OwnFields = 'disk_gib' | 'command' | 'entrypoint' | 'restart_policy' | 'ports' | 'health_check'

export interface NewContainer extends NewInstance, Pick<ContainerDocument, OwnFields> {
  config_vars: Record<string, string>
  machine?: boolean
  runner?: boolean
}

/** Throws NameTaken, QuotaExceeded, NotFound, InvalidInput, the 409s of disks and subnets, and as `needAllowedImage`. */
export async function acceptContainer(
  by: By,
  {
    start,
    config_vars,
    host_id,
    nics,
    managed_by = null,
    machine = false,
    runner = false,
    ...spec
  }: NewContainer,
): Promise<Accepted<ContainerDocument>> {
  needAllowedImage(spec.image)
  await mustBePublished(spec.ports, host_id)
  const fields = {
    ...spec,
    ...newborn(start, host_id),
    config_vars_sealed: await sealConfigVars(by.tenant_id, config_vars),
    machine,
    runner,
    bindings: unbound(spec.ports),
    health: 'none' as const,
  }
  return create(by, containerResource, {
    fields,
    managed_by,
    input: { start },
    reserve: (container) => takeForNew(containerKind, container, { host_id, nics }),
  })
}

type ContainerChanges = Changes<
  ContainerDocument,
  OwnFields | 'image' | 'cpu_cores' | 'memory_mib' | 'log_cap_mib' | 'tags'
>

/** Throws QuotaExceeded, NoCapacity if the host has no room for the new size, and as `needAllowedImage`. */
export const acceptContainerUpdate = async (
  by: By,
  id: string,
  changes: ContainerChanges,
): Promise<Accepted<ContainerDocument>> => {
  await mustBePublished(changes.ports ?? [])
  return begin(by, containerResource, id, 'update', {
    input: { changes },
    reserve: async ({ cpu_cores, memory_mib }) => {
      needAllowedImage(changes.image)
      const size = { cpu_cores: changes.cpu_cores ?? cpu_cores, memory_mib: changes.memory_mib ?? memory_mib }
      return resize(id, by.tenant_id, sizeOf(size))
    },
  })
}

accepts(containerResource, {
  create: acceptContainer,
  verbs: { ...instanceVerbs(containerKind), update: acceptContainerUpdate },
})
