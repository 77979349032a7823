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

/** A further kind is one more driver behind the same interface. */
export type MachineKind = 'microvm' | 'vm'

/** A machine as an engine needs to know it. Its id names it there, so that asking twice makes one. */
export interface MachineSpec {
  id: string
  tenant_id: string
  /** Its host name inside. */
  name: string
  kind: MachineKind
  /** A microVM's: an OCI image. A VM's: the name of one of `vmImages`. */
  image: string
  /** Pinned once known, so that a restart begins with the same bytes. */
  image_digest: string | null
  /** These two as a container has them; a VM has its own init, and neither. */
  command: string[]
  entrypoint: string[]
  /** Whole ones. */
  cpu_cores: number
  memory_mib: number
  /** It grows at the next start, and never shrinks. */
  root_disk_gib: number
  /** Of a microVM's command. It runs the command again without the host's doing. */
  restart_policy: 'always' | 'on_failure' | 'never'
  log_cap_mib: number
  nics: MachineNic[]
  disks: MachineDisk[]
  /** What it reads as its resolver. */
  network?: { dns_server: string; search_domain: string } | null
  /** Reached by its first NIC's address; without a NIC nothing is published. */
  ports?: PublishedPort[]
  /** Of a microVM. */
  health_check?: HealthCheck | null
  /** A VM's: lines for `authorized_keys`, and what cloud-init is to do. */
  ssh_keys?: string[]
  user_data?: string | null
}

/**
 * A NIC whose tap is there: `namespace` and `device` are what NetworkDriver.attachNic gave for it. Taps stay the
 * network driver's: whoever attached them detaches them, once the machine is removed.
 */
export interface MachineNic {
  id: string
  mac_address: string
  ip_address: string
  /** Of the subnet. */
  prefix_length: number
  gateway_ip: string
  default_route: boolean
  namespace: string
  device: string
}

/** A disk that is served: `socket` is what Disks.plug gave for it. */
export interface MachineDisk {
  disk_id: string
  /** Absolute; folders that are missing are made. In a VM the disk is only there, by its id as serial: mounting is its own affair. */
  mount_path: string
  read_only: boolean
  socket: string
}

export interface FoundMachine extends Omit<FoundContainer, 'kind' | 'state' | 'network_since'> {
  kind: MachineKind
  /**
   * `suspended`: its memory is a whole file, and nothing of it runs. `exited`: it ended, was stopped, or lost its process;
   * `exit_code` is the command's where that ended by itself. Whatever else was under way when a worker was killed is
   * one of these again.
   */
  state: 'created' | 'running' | 'suspended' | 'exited'
  /** Null unless suspended. */
  suspended: Suspended | null
  /** The operation by which it was last started. */
  operation_id: string
  /** What of its present spec holds only from its next start. */
  pending: ('cpu_cores' | 'memory_mib')[]
  /** Null as long as it runs, and where nobody saw it end. */
  ended_by: Ending | null
}

/** How it ended where nobody told it to, and no command of its own ended. */
export type Ending = 'shut_down' | 'restarted' | 'panicked' | 'killed'

/** What a suspended machine's memory was written by. Only what is alike in both can read it. */
export interface Suspended {
  at: string
  memory_bytes: number
  /** What the root disk takes beyond its image. */
  root_disk_bytes: number
  engine_version: string
  tsc_khz: number
}

export interface MachineEngineDescription extends EngineDescription {
  /** Found by booting a guest, once per boot of the host and kernel: `/dev/kvm` alone says nothing. */
  accelerator: 'kvm' | 'tcg'
  /** The microVMs' kernel. */
  kernel: string
}

/** How another host gets a machine that is stopped or suspended. The key is a secret: who has it reads all of the machine. */
export interface MachineSource {
  address: string
  port: number
  key: string
  /** Of the root disk: its size for the machine. */
  root_disk_bytes: number
  suspended: Suspended | null
  /** The machine's own record, for the engine alone. */
  record: string
}

export interface ReadyImage {
  image_digest: string
  /** The least `root_disk_gib` for it. */
  least_disk_gib: number
}

export type Signal = { signal?: AbortSignal | undefined }

/** How machines come up, go down, and are found. */
export interface MachineLifecycle {
  /**
   * Makes the root disk of an image, which machines share; what the host has already is not asked of a registry. With a
   * digest, of those very bytes. Throws ImageNotFound, HostDiskFull.
   */
  prepare(kind: MachineKind, image: string, options?: PullOptions): Promise<ReadyImage>
  /**
   * Creates and starts it, or finds it there and running. One that exists stopped starts with the present spec; its root
   * disk stays, unless image or digest has changed. A suspended one's memory is given up: it starts from its disk.
   * Returns once its command runs (microVM) or its engine does (VM). `configVars` go to the machine itself, and are
   * written nowhere. After a failure nothing that this operation made is left.
   * Throws CommandFailed, ImageNotFound, PortInUse, EngineRefused, HostDiskFull.
   */
  run(spec: MachineSpec, configVars: Record<string, string>, operationId: string): Promise<FoundMachine>
  find(id: string): Promise<FoundMachine | null>
  /**
   * Has its agent (a VM: ACPI) end it, and ends it by force after `graceSec`; a suspended one's memory is given up.
   * Nothing to stop is success. An aborted call stops waiting: the machine ends all the same.
   */
  stop(id: string, graceSec: number, signal?: AbortSignal): Promise<void>
  /** Stops and starts it, once for an operation. Throws InstanceNotFound, and what `run` throws. */
  reboot(
    spec: MachineSpec,
    configVars: Record<string, string>,
    operationId: string,
    graceSec: number,
  ): Promise<FoundMachine>
  /** cpu and memory for its next start, restart policy at once; see FoundMachine.pending. Throws InstanceNotFound. */
  resize(
    id: string,
    size: Pick<MachineSpec, 'cpu_cores' | 'memory_mib' | 'restart_policy'>,
  ): Promise<FoundMachine>
  /**
   * Writes its memory to a file and ends its process; its root disk, taps and plugged disks stay. The file is whole and synced
   * before the process ends, and whoever is killed in between leaves it running or suspended. Terminals end.
   * Already suspended is success. Throws InstanceNotFound, InstanceNotRunning, HostDiskFull.
   */
  suspend(id: string, signal?: AbortSignal): Promise<FoundMachine>
  /**
   * Goes on at the very instruction, with its clock set right; already running is success. NICs and disks are looked up in
   * `spec` by their ids, since taps and sockets may have been made anew; which they are must be as at the suspension.
   * The memory is given up once the machine has answered. Throws InstanceNotFound; MemoryUnusable where the memory was
   * written by another QEMU or processor, or has been given up: the machine was stopped, or a resume that broke off had let it write
   * its disks. `run` then starts it from its root disk.
   */
  resume(spec: MachineSpec): Promise<FoundMachine>
  /**
   * Makes a machine of a suspended one's root disk and memory, which stays as it is. Image, cpu, memory and the number of
   * NICs are those of the other; before it reaches anybody it has its own name, addresses, random numbers and clock.
   * `configVars` are for commands that begin later: what runs already has the other's. Plugged disks are not copied: suspend without
   * any. Throws InstanceNotFound, EngineRefused, MemoryUnusable, HostDiskFull.
   */
  fork(
    fromId: string,
    spec: MachineSpec,
    configVars: Record<string, string>,
    operationId: string,
  ): Promise<FoundMachine>
  /**
   * Removes it with all that it left on the host, once its output is safe elsewhere; with `discard`, at once. Nothing to
   * remove, or another than `engineId`, is success. Its taps and disks are others' to take away.
   */
  remove(id: string, options?: { engineId?: string | undefined; discard?: boolean }): Promise<void>
}

/** Disks and NICs of a machine. */
export interface MachineAttachments {
  /** Live, or for the next start where it does not run. Throws InstanceNotFound, EngineRefused. */
  attachDisk(id: string, disk: MachineDisk): Promise<void>
  /** Unmounts it first. Nothing to detach is success. Throws DiskInUse; it is attached still then. */
  detachDisk(id: string, diskId: string): Promise<void>
  /** Lets the machine see that a disk has grown; a VM sees it from its next start on. Throws InstanceNotFound. */
  growDisk(id: string, diskId: string): Promise<void>
  /** Live, or for the next start. Throws InstanceNotFound; EngineRefused beyond the fourth. */
  attachNic(id: string, nic: MachineNic): Promise<void>
  /** Nothing to detach is success. A microVM under QEMU takes six seconds for it. */
  detachNic(id: string, nicId: string): Promise<void>
  /** Its file systems stand still and are whole on their disks, until `thaw`, or for ten seconds. Throws InstanceNotRunning. */
  freeze(id: string): Promise<void>
  /** Nothing frozen is success. */
  thaw(id: string): Promise<void>
}

/** What passes between a machine and whoever uses it. */
export interface MachineConsole {
  /** Runs a command in a running machine. A VM needs the platform's agent, which `vmImages` have. Throws InstanceNotFound, InstanceNotRunning. */
  exec(id: string, command: string[], size: TerminalSize): Promise<Terminal>
  /**
   * Its serial line; as many at a time as like, each sees all from the last 64 KiB on. Ends when the machine does, and is
   * not ended by its suspension's end. Throws InstanceNotFound, InstanceNotRunning.
   */
  console(id: string): Promise<Duplex>
  /** What a microVM's command wrote; of a VM, its serial line. Throws InstanceNotFound. */
  logs(id: string, options: LogOptions): AsyncIterable<LogEntry>
}

/** What the host's program does for all its machines. */
export interface MachineMaintenance {
  readonly kinds: readonly MachineKind[]
  /** Names of VMs' images. Each is made at its first use, which takes minutes. */
  readonly vmImages: readonly string[]
  /** All of this host's machines, whatever their state. */
  list(): Promise<FoundMachine[]>
  /** What those of these that run have used since `started_at`; a suspension takes nothing off. */
  sample(machines: FoundMachine[]): Promise<ContainerSample[]>
  /**
   * Calls back at each change of one of this host's machines, until aborted; with null once it begins: anything may have
   * changed before.
   */
  watch(onChange: (id: string | null) => void, signal: AbortSignal): Promise<void>
  describe(): Promise<MachineEngineDescription>
  /** Brings back what tells nobody of its end: what carries the ports of machines that run. */
  mend(): Promise<void>
  /** Removes the root disks of images that no machine is of, and that nobody has asked for in so long. Returns their names. */
  removeUnusedImages(unusedMs: number): Promise<string[]>
  /** Lets go of all machines, which run on: for who ends in good order. */
  close(): Promise<void>
}

/**
 * Machines of one host. All calls are idempotent by the machine's id, calls for one machine go one after another, and
 * none touches what does not carry this host's mark. The machines outlive the worker: one that is started finds them,
 * connects to them and goes on; no line of their output is lost by it. Two processes must not share a folder.
 *
 * Beside what is said, all throw EngineUnavailable and HostNotEquipped.
 */
export type MachineEngine = MachineLifecycle & MachineAttachments & MachineConsole & MachineMaintenance

/** How a machine that does not run goes from one host to another: the old host serves it, the new one pulls. */
export interface MachineTransfers {
  /**
   * Lets another host read a machine that does not run, encrypted, for at most so many seconds. Throws InstanceNotFound,
   * EngineRefused.
   */
  serve(id: string, seconds: number, signal?: AbortSignal): Promise<MachineSource>
  /** Nothing served is success. */
  stopServing(id: string): Promise<void>
  /** Copies it from there: suspended or stopped, as it was. An older copy is replaced. Throws HostDiskFull, MemoryUnusable. */
  pull(id: string, from: MachineSource, options?: Signal): Promise<FoundMachine>
}
