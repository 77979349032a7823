import type { Duplex } from 'node:stream'
import type {
  ContainerSample,
  EngineDescription,
  FoundContainer,
  HealthCheck,
  LogEntry,
  LogOptions,
  PublishedPort,
  PullOptions,
  Terminal,
  TerminalSize,
} from './containers.ts'

/** A new kind needs one more driver behind the same interface. */
export type MachineKind = 'microvm' | 'vm'

/**
 * What an engine needs to run a machine. The engine finds the machine by `id`, so a repeated request makes only one.
 */
export interface MachineSpec {
  id: string
  tenant_id: string
  /** The host name inside the machine. */
  name: string
  kind: MachineKind
  /** microVM: an OCI image. VM: a name from `vmImages`. */
  image: string
  /** Pinned once known, so that a restart uses the same bytes. */
  image_digest: string | null
  /** Like a container's. Unused for a VM, which has its own init. */
  command: string[]
  entrypoint: string[]
  /** Whole cores. */
  cpu_cores: number
  memory_mib: number
  /** Grows at the next start; never shrinks. */
  root_disk_gib: number
  /** Applies to a microVM's command. The machine restarts the command without the host. */
  restart_policy: 'always' | 'on_failure' | 'never'
  log_cap_mib: number
  nics: MachineNic[]
  disks: MachineDisk[]
  /** Resolver settings inside the machine. */
  network?: { dns_server: string; search_domain: string } | null
  /** Forwarded to the address of the first NIC; a machine without a NIC publishes nothing. */
  ports?: PublishedPort[]
  /** microVM only. */
  health_check?: HealthCheck | null
  /** VM only: lines for `authorized_keys`, and user data for cloud-init. */
  ssh_keys?: string[]
  user_data?: string | null
}

/**
 * A NIC with an existing tap: `namespace` and `device` come from NetworkDriver.attachNic. The network driver owns
 * taps: the caller that attached one detaches it after the machine is removed.
 */
export interface MachineNic {
  id: string
  mac_address: string
  ip_address: string
  /** Prefix length of the subnet. */
  prefix_length: number
  gateway_ip: string
  default_route: boolean
  namespace: string
  device: string
}

/** A disk served on a socket: `socket` comes from Disks.plug. */
export interface MachineDisk {
  disk_id: string
  /**
   * Absolute path; missing folders are made. A VM only gets the device, with the disk's id as its serial number, and
   * mounts it itself.
   */
  mount_path: string
  read_only: boolean
  socket: string
}

export interface FoundMachine extends Omit<FoundContainer, 'kind' | 'state' | 'network_since' | 'ended_by'> {
  kind: MachineKind
  /**
   * `suspended`: its memory is in a complete file and no process runs. `exited`: it ended, was stopped, or lost its
   * process; `exit_code` is set if the command ended by itself. An operation interrupted by a killed worker settles in
   * one of these states.
   */
  state: 'created' | 'running' | 'suspended' | 'exited'
  /** Null unless suspended. */
  suspended: Suspended | null
  /** The operation that last started the machine. */
  operation_id: string
  /** Fields of the present spec that take effect at the next start. */
  pending: ('cpu_cores' | 'memory_mib')[]
  /** Null while the machine runs, and if nothing observed its end. */
  ended_by: Ending | null
  /**
   * Disks for whose writes the host has no room; `root` is the root disk. The running machine stands still, and goes on by
   * itself as soon as there is room.
   */
  full_disks: string[]
}

/** Why a machine ended without a stop request and without its command ending. */
export type Ending = 'shut_down' | 'restarted' | 'panicked' | 'killed'

/** What wrote a suspended machine's memory. Only the same engine version and processor clock can read it. */
export interface Suspended {
  at: string
  memory_bytes: number
  /** What the root disk uses beyond its image. */
  root_disk_bytes: number
  engine_version: string
  tsc_khz: number
}

export interface MachineEngineDescription extends EngineDescription {
  /**
   * Found by booting a test guest once per host boot and kernel, because a present `/dev/kvm` does not prove that KVM
   * works.
   */
  accelerator: 'kvm' | 'tcg'
  /** Kernel of the microVMs. */
  kernel: string
}

/**
 * Where another host reads a stopped or suspended machine. The key is a secret: it gives read access to the whole
 * machine.
 */
export interface MachineSource {
  address: string
  port: number
  key: string
  /** Size of the root disk as the machine sees it. */
  root_disk_bytes: number
  suspended: Suspended | null
  /** The machine's record, read only by the engine. */
  record: string
}

export interface ReadyImage {
  image_digest: string
  /** The minimum `root_disk_gib` for this image. */
  least_disk_gib: number
}

export type Signal = { signal?: AbortSignal | undefined }

/** Create, start, stop, suspend and find machines. */
export interface MachineLifecycle {
  /**
   * Makes the root disk of an image, which machines share. Asks the registry only if the host does not have the image.
   * With a digest, uses exactly those bytes. Throws ImageNotFound, HostDiskFull.
   */
  prepare(kind: MachineKind, image: string, options?: PullOptions): Promise<ReadyImage>
  /**
   * Creates and starts the machine, or finds it running. A stopped machine starts with the present spec; its root disk
   * stays unless image or digest has changed. A suspended machine loses its memory and starts from its disk. Returns
   * when its command runs (microVM) or its engine runs (VM). `configVars` go only to the machine and are never stored.
   * After a failure, nothing that this operation made is left. Throws CommandFailed, ImageNotFound, PortInUse,
   * EngineRefused, HostDiskFull.
   */
  run(spec: MachineSpec, configVars: Record<string, string>, operationId: string): Promise<FoundMachine>
  find(id: string): Promise<FoundMachine | null>
  /**
   * Stops the machine through its agent (VM: ACPI), and by force after `graceSec`. A suspended machine loses its
   * memory. Succeeds if nothing runs. An aborted call stops waiting; the machine still ends.
   */
  stop(id: string, graceSec: number, signal?: AbortSignal): Promise<void>
  /** Stops and starts the machine, once per operation. Throws InstanceNotFound, and what `run` throws. */
  reboot(
    spec: MachineSpec,
    configVars: Record<string, string>,
    operationId: string,
    graceSec: number,
  ): Promise<FoundMachine>
  /**
   * Applies the restart policy at once, cpu and memory at the next start; see FoundMachine.pending. Throws
   * InstanceNotFound.
   */
  resize(
    id: string,
    size: Pick<MachineSpec, 'cpu_cores' | 'memory_mib' | 'restart_policy'>,
  ): Promise<FoundMachine>
  /**
   * Writes the memory to a file and ends the process; root disk, taps and plugged disks stay. The file is complete and
   * synced before the process ends, so after a crash the machine is either running or suspended. Terminals end.
   * Succeeds if already suspended. Throws InstanceNotFound, InstanceNotRunning, HostDiskFull.
   */
  suspend(id: string, signal?: AbortSignal): Promise<FoundMachine>
  /**
   * Continues at the same instruction and corrects the clock; succeeds if already running. NICs and disks must be the
   * same as at the suspension, by id, but their taps and sockets may be new: they are taken from `spec`. The memory is
   * dropped after the machine has answered. Throws InstanceNotFound; MemoryUnusable if another QEMU or processor wrote
   * the memory, or if it was dropped: the machine was stopped, or an interrupted resume let it write to its disks.
   * `run` then starts it from its root disk.
   */
  resume(spec: MachineSpec): Promise<FoundMachine>
  /**
   * Makes a new machine from a suspended machine's root disk and memory; the original does not change. Image, cpu,
   * memory and number of NICs are the original's. Before anything can reach the new machine, it has its own name,
   * addresses, random seed and clock. `configVars` apply to commands that start later; running ones keep the
   * original's. Plugged disks are not copied: suspend without any. Throws InstanceNotFound, EngineRefused,
   * MemoryUnusable, HostDiskFull.
   */
  fork(
    fromId: string,
    spec: MachineSpec,
    configVars: Record<string, string>,
    operationId: string,
  ): Promise<FoundMachine>
  /**
   * Removes the machine and everything it left on the host, after its output is stored elsewhere; with `discard`, at
   * once. Succeeds if the machine is gone or has another engine id than `engineId`. The caller removes its taps and
   * disks.
   */
  remove(id: string, options?: { engineId?: string | undefined; discard?: boolean }): Promise<void>
}

/** Disks and NICs of a machine. */
export interface MachineAttachments {
  /** Live, or at the next start if the machine is not running. Throws InstanceNotFound, EngineRefused. */
  attachDisk(id: string, disk: MachineDisk): Promise<void>
  /** Unmounts the disk first. Succeeds if it is not attached. Throws DiskInUse, and then it is still attached. */
  detachDisk(id: string, diskId: string): Promise<void>
  /** Shows a running machine the new size of a disk; a VM sees it at its next start. Throws InstanceNotFound. */
  growDisk(id: string, diskId: string): Promise<void>
  /** Live, or at the next start. Throws InstanceNotFound; EngineRefused for a fifth NIC. */
  attachNic(id: string, nic: MachineNic): Promise<void>
  /** Succeeds if it is not attached. Takes six seconds for a microVM under QEMU. */
  detachNic(id: string, nicId: string): Promise<void>
  /**
   * Freezes the machine's file systems in a consistent state, until `thaw` or for ten seconds. Throws
   * InstanceNotRunning.
   */
  freeze(id: string): Promise<void>
  /** Succeeds if nothing is frozen. */
  thaw(id: string): Promise<void>
}

/** Terminals, serial consoles and logs of machines. */
export interface MachineConsole {
  /**
   * Runs a command in a running machine. A VM needs the platform's agent, which all `vmImages` contain. Throws
   * InstanceNotFound, InstanceNotRunning.
   */
  exec(id: string, command: string[], size: TerminalSize): Promise<Terminal>
  /**
   * Runs a command in a running machine, with its input and output as one stream. The stream fails with what the command
   * writes to stderr. To destroy it ends the command's input. A VM needs the agent. Throws InstanceNotFound,
   * InstanceNotRunning.
   */
  pipe(id: string, command: string[]): Promise<Duplex>
  /**
   * Opens the serial console. Any number may be open; each starts with the last 64 KiB. Ends when the machine ends,
   * but continues after a suspension. Throws InstanceNotFound, InstanceNotRunning.
   */
  console(id: string): Promise<Duplex>
  /** The output of a microVM's command, or of a VM's serial console. Throws InstanceNotFound. */
  logs(id: string, options: LogOptions): AsyncIterable<LogEntry>
}

/** Calls that concern all machines of the host. */
export interface MachineMaintenance {
  readonly kinds: readonly MachineKind[]
  /** Names of VM images. Each is built at its first use, which takes minutes. */
  readonly vmImages: readonly string[]
  /** All machines of this host, in any state. */
  list(): Promise<FoundMachine[]>
  ids(): Promise<string[]>
  /** What the running ones among `machines` have used since `started_at`; a suspension does not reset the counters. */
  sample(machines: FoundMachine[]): Promise<ContainerSample[]>
  /**
   * Calls back with the id at each change of one of this host's machines, until aborted. Calls back with null at the
   * start, because earlier changes may have been missed.
   */
  watch(onChange: (id: string | null) => void, signal: AbortSignal): Promise<void>
  describe(): Promise<MachineEngineDescription>
  /** Restarts helper processes whose end is not reported: the port forwarders of running machines. */
  mend(): Promise<void>
  /**
   * Removes root disks of images that no machine uses and that were not requested for `unusedMs`, or for an hour if the
   * disk has too little room. Returns their names.
   */
  removeUnusedImages(unusedMs: number): Promise<string[]>
  /** Disconnects from all machines, which keep running. For a clean shutdown of the worker. */
  close(): Promise<void>
}

/**
 * Machines of one host. All calls are idempotent by the machine's id, calls for one machine run one after another, and
 * no call touches anything without this host's label. Machines outlive the worker: a new worker finds them, connects
 * and continues, and no line of their output is lost. Two processes must not share a folder.
 *
 * All calls can also throw EngineUnavailable and HostNotEquipped.
 */
export type MachineEngine = MachineLifecycle & MachineAttachments & MachineConsole & MachineMaintenance

/** Moves a machine that is not running between hosts: the old host serves it, the new one pulls it. */
export interface MachineTransfers {
  /**
   * Lets another host read a machine that is not running, encrypted, for at most `seconds`. Throws InstanceNotFound,
   * EngineRefused.
   */
  serve(id: string, seconds: number, signal?: AbortSignal): Promise<MachineSource>
  /** Succeeds if nothing is served. */
  stopServing(id: string): Promise<void>
  /**
   * Copies the machine from the source; it stays suspended or stopped. Replaces an older copy. Throws HostDiskFull,
   * MemoryUnusable.
   */
  pull(id: string, from: MachineSource, options?: Signal): Promise<FoundMachine>
}
