import type { InstanceKindName, PlacedKindName } from '../../lib/host-protocol.ts'
import { type InstanceType, instanceTypes } from './instance-types.ts'

// The kinds of instances that the machines of deploy servers can be. All that differs between them is here.

/** A node's name and what its machine is made with. */
export interface MachineOrder {
  name: string
  tags: Record<string, string>
  managed_by: string
  instance_type: InstanceType
  nic: { subnet_id: string; ip_address: string }
  /** The image of container machines, by the operator's settings. */
  container_image: string
  /** The registry of the deploy server. In the deploy server's own network, it has no certificate. */
  registry: string
}

export interface MachineProvider {
  /** What a host reports that may run such machines. */
  placed_as: PlacedKindName
  /** The size of the instance. */
  sizeOf(type: InstanceType): { cpu_cores: number; memory_mib: number }
  /** The fields of the instance to create, but its disk. */
  fieldsOf(order: MachineOrder): object
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

const engineArguments = ({ registry }: MachineOrder): string => `--insecure-registry ${registry}`

const container: MachineProvider = {
  placed_as: 'machine',
  sizeOf: (type) => instanceTypes[type],
  fieldsOf: (order) => ({
    ...commonFields(order),
    ...instanceTypes[order.instance_type],
    machine: true,
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

/** By the kind of instance. */
export const machineProviders = { container } as const satisfies Partial<
  Record<InstanceKindName, MachineProvider>
>
export type DeployMachineKind = keyof typeof machineProviders
export const deployMachineKinds = Object.keys(machineProviders) as [DeployMachineKind, ...DeployMachineKind[]]

/** Typed as the interface, not as one of its implementations. */
export const providerOf = (kind: DeployMachineKind): MachineProvider => machineProviders[kind]
