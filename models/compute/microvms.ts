import { Schema } from 'mongoose'
import type { ContainerSpec } from '../../drivers/containers.ts'
import { type Binding, unbound } from '../../lib/ports.ts'
import { InvalidInput, OperationInProgress, Problem, StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { mine } from '../resources.ts'
import { needAllowedImage } from './images.ts'
import { type Changes, newborn, takeForNew } from './instance-acceptance.ts'
import {
  defineMachine,
  type MachineDocument,
  machineVerbs,
  microvmStates,
  mustNotShrink,
  type NewMachine,
} from './machines.ts'
import { place } from './placement.ts'
import { mustBePublished, withKept } from './ports.ts'
import { resize } from './reservations.ts'

/** A machine that runs the command of an OCI image. */
export interface MicrovmDocument extends MachineDocument, Pick<ContainerSpec, 'ports' | 'health_check'> {
  /** The host ports assigned to the requested `ports`. */
  bindings: Binding[]
  health: 'none' | 'starting' | 'healthy' | 'unhealthy'
}

const { Mixed } = Schema.Types
export const microvmKind = defineMachine<MicrovmDocument, Parameters<typeof microvmStates.from>[0]>(
  'microvm',
  'microVM',
  microvmStates,
  {
    fields: {
      ports: { type: [Mixed], default: [] },
      health_check: { type: Mixed, default: null },
      bindings: { type: [Mixed], default: [] },
      health: { type: String, default: 'none' },
    },
    specOf: ({ ports, bindings, health_check }) => ({ ports: withKept(ports, bindings), health_check }),
    /** Published ports need a NIC. */
    mayLoseNic({ nics, ports, bindings }) {
      if (nics.length > 1 || ports.length + bindings.length === 0) return
      const detail =
        'Its published ports use its only NIC: remove the ports first, and restart it if it is running'
      throw new Problem(409, 'ports_need_nic', 'Published ports need the NIC', detail)
    },
  },
)
const { resource } = microvmKind

type OwnFields = 'command' | 'entrypoint' | 'restart_policy' | 'ports' | 'health_check'

export interface NewMicrovm extends NewMachine, Pick<MicrovmDocument, OwnFields> {
  config_vars: Record<string, string>
}

/** Throws NameTaken, QuotaExceeded, NotFound, InvalidInput and the 409s of disks and subnets. */
export async function acceptMicrovm(
  by: By,
  { start, config_vars, host_id, nics, ...spec }: NewMicrovm,
): Promise<Accepted<MicrovmDocument>> {
  mustBeReached(nics, spec.ports)
  needAllowedImage(spec.image)
  await mustBePublished(spec.ports, host_id)
  const fields = {
    ...spec,
    ...newborn(start, host_id),
    bindings: unbound(spec.ports),
    health: 'none' as const,
    config_vars_sealed: await microvmKind.sealConfigVars(by.tenant_id, config_vars),
    transfer_sealed: '-',
  }
  return create(by, resource, {
    fields,
    input: { start },
    reserve: (microvm) => takeForNew(microvmKind, microvm, { host_id, nics }),
  })
}

type MicrovmChanges = Changes<
  MicrovmDocument,
  OwnFields | 'image' | 'cpu_cores' | 'memory_mib' | 'root_disk_gib' | 'log_cap_mib' | 'tags'
>

/** Throws InvalidInput, QuotaExceeded, and NoCapacity if the host has no room for the new size. */
export const acceptMicrovmUpdate = async (
  by: By,
  id: string,
  changes: MicrovmChanges,
): Promise<Accepted<MicrovmDocument>> => {
  await mustBePublished(changes.ports ?? [])
  return begin(by, resource, id, 'update', {
    input: { changes },
    reserve: async (microvm) => {
      needAllowedImage(changes.image)
      mustNotShrink(microvm, changes)
      mustBeReached(microvm.nics, changes.ports)
      const changed = { ...microvm, ...changes } as MicrovmDocument
      return resize(id, by.tenant_id, microvmKind.sizeOf(changed))
    },
  })
}

export interface Fork extends Pick<MicrovmDocument, 'name' | 'tags'> {
  /** For processes that start in the fork; running ones keep the source's. Default: the source's config vars. */
  config_vars?: Record<string, string> | undefined
}

/**
 * Accepts a new microVM with the memory and root disk of this suspended one, on the same host. Throws NotFound,
 * NameTaken, QuotaExceeded, NoCapacity, StateConflict, OperationInProgress, `has_disks` and the 409s of subnets.
 */
export const acceptFork = (
  by: By,
  id: string,
  { name, tags, config_vars }: Fork,
): Promise<Accepted<MicrovmDocument>> =>
  transaction(async () => {
    const source = await mine(resource, by, id)
    const { host_id } = source
    const vars = config_vars ?? (await microvmKind.openConfigVars(source))
    const fields = {
      ...copied(source),
      ...newborn(true, null),
      ...source.runs_with,
      name,
      tags,
      image_digest: source.image_digest,
      disks: [],
      config_vars_sealed: await microvmKind.sealConfigVars(by.tenant_id, vars),
      transfer_sealed: '-',
    }
    return create(by, resource, {
      fields,
      verb: 'fork',
      input: { from: id },
      async reserve(microvm) {
        await takeSource(source, microvm.operation_id)
        const nics = source.nics.map(({ subnet_id }) => ({ subnet_id, ip_address: null }))
        const taken = await takeForNew(microvmKind, microvm, { host_id, nics })
        await place(microvm._id, { kind: 'microvm', hostId: host_id })
        return taken
      },
    })
  }, by.tenant_id)

accepts(resource, {
  create: acceptMicrovm,
  verbs: { ...machineVerbs(microvmKind), update: acceptMicrovmUpdate },
  copies: { fork: acceptFork },
})

/** Published ports need a NIC: a microVM without NICs has no network. Throws InvalidInput. */
function mustBeReached(nics: unknown[], ports: unknown[] = []): void {
  if (ports.length === 0 || nics.length > 0) return
  const message = 'needs a NIC: clients reach a microVM only through its NICs'
  throw new InvalidInput(422, [{ pointer: '/ports', message }])
}

/** The fields that a fork copies. Host ports are assigned anew: the source on the same host has its own. */
function copied(source: MicrovmDocument) {
  const ports = source.ports.map((port) => ({ ...port, host_port: null }))
  return {
    image: source.image,
    command: source.command,
    entrypoint: source.entrypoint,
    cpu_cores: source.cpu_cores,
    memory_mib: source.memory_mib,
    root_disk_gib: source.root_disk_gib,
    restart_policy: source.restart_policy,
    log_cap_mib: source.log_cap_mib,
    health_check: source.health_check,
    health: 'none' as const,
    ports,
    bindings: unbound(ports),
  }
}

/**
 * Locks the source: no other operation changes it until the fork ends. Throws StateConflict, OperationInProgress,
 * `has_disks`.
 */
async function takeSource(source: MicrovmDocument, operationId: string | null): Promise<void> {
  const { _id, tenant_id, status, operation_id, disks } = source
  if (operation_id) throw new OperationInProgress(operation_id)
  if (status !== 'suspended') throw new StateConflict('fork', status)
  if (disks.length) {
    const detail = 'Attached disks cannot be forked: detach them before suspending the microVM'
    throw new Problem(409, 'has_disks', 'The microVM has disks', detail)
  }
  const { matchedCount } = await microvmKind.model.updateOne(
    { _id, tenant_id, status, operation_id: null },
    { $set: { operation_id: operationId } },
  )
  if (!matchedCount) throw new StateConflict('fork', status)
}
