import type { InstanceKindName, PlacedKindName } from '../../lib/host-protocol.ts'
import { Problem } from '../../lib/problem.ts'
import { deployMachineImage } from '../compute/vms.ts'
import { type InstanceType, instanceTypes } from './instance-types.ts'

// The kinds of instances that the machines of deploy servers can be. All that differs between them is here. VMs keep tenants
// apart; container machines share the kernel of their host, which allows them by a setting.

/** A node's name and what its machine is made with. */
export interface MachineOrder {
  name: string
  tags: Record<string, string>
  managed_by: string
  instance_type: InstanceType
  nic: { subnet_id: string; ip_address: string }
  /** The image of container machines, by the operator's settings. */
  container_image: string
  /** The registries of the deploy server. In the deploy server's own network, they have no certificates. */
  registries: string[]
}

export interface MachineProvider {
  /** What a host reports that may run such machines. */
  placed_as: PlacedKindName
  /** The size of the instance. */
  sizeOf(type: InstanceType): { cpu_cores: number; memory_mib: number }
  /** The fields of the instance to create, but its disk. */
  fieldsOf(order: MachineOrder): object
  /** It takes a new size, and a new size of its disk, at its next start. */
  restarts: boolean
  /** How long the engine in a machine may take to answer after the machine's start. */
  answers_within_sec: number
}

/** Where a machine's disk is mounted. */
export const dataFolder = '/var/lib/machine'

const commonFields = ({ name, tags, managed_by, nic }: MachineOrder) => ({
  name,
  tags,
  managed_by,
  log_cap_mib: 16,
  start: true,
  host_id: null,
  nics: [nic],
})

const engineArguments = ({ registries }: MachineOrder): string =>
  registries.map((registry) => `--insecure-registry ${registry}`).join(' ')

const container: MachineProvider = {
  placed_as: 'machine',
  restarts: false,
  sizeOf: (type) => instanceTypes[type],
  fieldsOf: (order) => ({
    ...commonFields(order),
    ...instanceTypes[order.instance_type],
    machine: true,
    disk_gib: null,
    image: order.container_image,
    command: [],
    entrypoint: [],
    restart_policy: 'always',
    ports: [],
    health_check: null,
    config_vars: {
      MACHINE_DATA: dataFolder,
      MACHINE_AWAIT_DATA: '1',
      MACHINE_ENGINE_ARGS: engineArguments(order),
    },
  }),
  // Within two seconds; on a host that starts thirty of them, within a minute.
  answers_within_sec: 120,
}

// For the guest's kernel and its system: the rest is for the engine, as in a container machine.
const systemMib = 128
const vmRootDiskGib = 2

const vmSize = (type: InstanceType) => ({
  cpu_cores: Math.ceil(instanceTypes[type].cpu_cores),
  memory_mib: instanceTypes[type].memory_mib + systemMib,
})

const vm: MachineProvider = {
  placed_as: 'vm_machine',
  restarts: true,
  sizeOf: vmSize,
  fieldsOf: (order) => ({
    ...commonFields(order),
    ...vmSize(order.instance_type),
    image: deployMachineImage,
    root_disk_gib: vmRootDiskGib,
    ssh_keys: [],
    // Read by images/vm/machine, which has no cloud-init.
    user_data: `MACHINE_ENGINE_ARGS=${engineArguments(order)}\n`,
    vpc_id: null,
  }),
  // With KVM it takes seconds. Without, a VM boots for a minute and a half, and several at once for that many times as long.
  answers_within_sec: 1200,
}

/** By the kind of instance. The safer one first. */
export const machineProviders = { vm, container } as const satisfies Partial<
  Record<InstanceKindName, MachineProvider>
>
export type DeployMachineKind = keyof typeof machineProviders
export const deployMachineKinds = Object.keys(machineProviders) as [DeployMachineKind, ...DeployMachineKind[]]

/** Typed as the interface, not as one of its implementations. */
export const providerOf = (kind: DeployMachineKind): MachineProvider => machineProviders[kind]

/**
 * Chooses what the machines of a new deploy server are: what it asks for, else the first of the operator's kinds that a
 * host offers. Throws a 409 `no_machines`.
 */
export function chooseMachineKind(
  asked: DeployMachineKind | null,
  { allowed, offered }: { allowed: readonly DeployMachineKind[]; offered: readonly PlacedKindName[] },
): DeployMachineKind {
  const possible = allowed.filter((kind) => offered.includes(providerOf(kind).placed_as))
  const chosen = asked === null ? possible[0] : possible.find((kind) => kind === asked)
  if (chosen) return chosen
  const detail = asked
    ? `No host may run machines of the kind ${asked} for deploy servers`
    : 'No host may run machines for deploy servers: VMs need hardware virtualization, and containers an operator’s setting'
  throw new Problem(409, 'no_machines', 'No machines for deploy servers', detail)
}
