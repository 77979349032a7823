import type { Duplex } from 'node:stream'

/**
 * What an engine needs to run a container. The engine finds the container by `id`, so a repeated request makes only
 * one.
 */
export interface ContainerSpec {
  id: string
  tenant_id: string
  name: string
  image: string
  /** Pinned after the first pull, so that a restart runs the same bytes. */
  image_digest: string | null
  command: string[]
  entrypoint: string[]
  cpu_cores: number
  memory_mib: number
  restart_policy: 'always' | 'on_failure' | 'never'
  ports: PublishedPort[]
  log_cap_mib: number
  health_check: HealthCheck | null
  /** Host folders that are mounted in the container. */
  mounts?: BindMount[]
  /** A machine of the platform: it runs an engine of its own, with the capabilities that this needs. */
  machine?: boolean
  /**
   * The id of a runner of AI workflows. Its container has no network, no capabilities, no user of this machine, and writes
   * nothing but to a small temporary folder in memory: its host gives it a way out by a mount.
   */
  runner?: string | null
  /** What it may write outside its disks. Null or missing: as much as there is room. */
  disk_gib?: number | null
  /**
   * Resolver settings of a container with NICs in VPCs. When set, the engine makes a network namespace for the NICs.
   */
  network?: { dns_server: string; search_domain: string } | null
}

export interface BindMount {
  host_path: string
  mount_path: string
  read_only: boolean
}

/** If `host_port` is null, the host chooses a port: `kept_port` if it is still free. */
export interface PublishedPort {
  container_port: number
  protocol: 'tcp' | 'udp'
  host_port: number | null
  kept_port?: number | null
}

export interface HealthCheck {
  command: string[]
  interval_sec: number
  timeout_sec: number
  retries: number
  start_period_sec: number
}

export interface FoundContainer {
  kind: 'container'
  /** A machine of a deploy server. */
  machine?: boolean
  /** The id of a runner of AI workflows. */
  runner?: string
  id: string
  /** The engine's id of the container. It changes when the container is recreated. */
  engine_id: string
  state: 'created' | 'running' | 'exited'
  exit_code: number | null
  oom_killed: boolean
  /** Its host stopped it: it had written more than it may. */
  ended_by?: 'disk_full'
  /** A quota holds it to what it may write outside its disks, and leaves no room: its writes there fail. */
  layer_full?: boolean
  restart_count: number
  /** It ended again and again: its host restarts it, with longer pauses. */
  crash_looping?: boolean
  started_at: string | null
  /** Host pid of the first process; null when the container is not running. */
  pid: number | null
  /** When the container got its network, if the network outlives restarts. */
  network_since?: string
  health: 'none' | 'starting' | 'healthy' | 'unhealthy'
  image_digest: string
  ports: { container_port: number; protocol: 'tcp' | 'udp'; host_port: number }[]
}

/** What a container has used. Counters start when the container starts. */
export interface Usage {
  cpu_ms: number
  /** Without page cache that the kernel can drop at once. */
  memory_bytes: number
  net_rx_bytes: number
  net_tx_bytes: number
  disk_read_bytes: number
  disk_write_bytes: number
}

/** What a running container has used up to `time`. Counters start at `started_at`. */
export interface ContainerSample extends Usage {
  id: string
  /** RFC 3339, UTC, milliseconds, like `started_at`. */
  time: string
  started_at: string
}

export interface LogOptions {
  /** Return only the last `lines` lines; all when undefined. */
  lines?: number
  /** Return lines at or after this time: RFC 3339, up to nanoseconds. */
  since?: string
  /** Keep sending new lines until the signal aborts or the container is removed. */
  follow?: boolean
  signal?: AbortSignal
}

export interface LogEntry {
  /** When the engine read the line: RFC 3339, UTC, nanoseconds. Entries sort by it. */
  time: string
  stream: 'stdout' | 'stderr'
  line: string
}

/** Whether this host may ask the registry of an image. */
export type MayAsk = (image: string) => Promise<boolean>

/** How a tenant signs in at a registry. */
export interface RegistryLogin {
  username: string
  password: string
  /** Another one after each change of the login. */
  version: string
}

export interface PullOptions {
  /** Pull these bytes instead of what the name points to now; null pulls what it points to now. */
  digest?: string | null
  /** Gets the tenant's login at the image's registry, if it has one. Called only before a registry is asked. */
  login?: () => Promise<RegistryLogin | null>
  onProgress?: (text: string) => void
  signal?: AbortSignal
}

export interface TerminalSize {
  cols: number
  rows: number
}

/** A command in a container, attached to its own terminal. */
export interface Terminal {
  /** The command's output and input. Ends when the command ends. */
  stream: Duplex
  /** Throws EngineUnavailable. Succeeds if the command has just ended. */
  resize(size: TerminalSize): Promise<void>
  /**
   * Call after the stream ends. 126 and 127: the command could not be started; above 128: a signal ended it. Throws
   * EngineUnavailable.
   */
  exitCode(): Promise<number>
  /**
   * Ends the command and everything in its terminal by hanging up, and by force after a second. A process in a session
   * of its own (`setsid`) keeps running. The image must have `/bin/sh`. Succeeds if nothing runs.
   */
  close(): Promise<void>
}

/** An engine's version and the total resources of its host. */
export interface EngineDescription {
  name: string
  version: string
  cpu_cores: number
  memory_mib: number
  disk_gib: number
}

/**
 * Containers of one host. All calls are idempotent by the container's id. No call touches a container without this
 * host's labels.
 */
export type ContainerEngine = ContainerLifecycle & ContainerInside

/** Whether and how they run. */
export interface ContainerLifecycle {
  /**
   * Makes the image present and returns its digest. Asks the registry only if the host does not have the image, or has it
   * by somebody's login. Throws ImageNotFound, ImageAccessDenied, ImageTooLarge, HostDiskFull, EngineUnavailable.
   */
  pull(image: string, options?: PullOptions): Promise<{ image_digest: string }>
  /**
   * Creates and starts the container, or finds it running. A stopped container is started with the present size; if
   * anything else in its spec has changed, it is recreated. A job (restart policy other than `always`) that ends at
   * once with exit code 0 is a success; any other immediate end is not. After a failure, nothing that this operation
   * made is left. Throws PortInUse, CommandFailed, ImageNotFound, EngineRefused, EngineUnavailable.
   *
   * With `network`, the container gets a network namespace that outlives its restarts. `onNetwork` gets the pid of a
   * process in that namespace before the command starts, to attach NICs; if it throws, the container is not started.
   */
  run(
    spec: ContainerSpec,
    configVars: Record<string, string>,
    operationId: string,
    onNetwork?: (pid: number) => Promise<void>,
  ): Promise<FoundContainer>
  /** Gives up when the signal aborts, and throws its reason. */
  find(id: string, signal?: AbortSignal): Promise<FoundContainer | null>
  /** All containers of this host, in any state. */
  list(): Promise<FoundContainer[]>
  /** The ids of all, also of those of which only the network is left. Gives up as `find` does. */
  ids(signal?: AbortSignal): Promise<string[]>
  /**
   * Waits until the container has ended, or kills it after `graceSec`. It stays ended, even if the engine restarts.
   * Succeeds if nothing runs. An aborted call stops waiting; the container still ends.
   */
  stop(id: string, graceSec: number, signal?: AbortSignal): Promise<void>
  /**
   * Applies what can change in a running container: cpu, memory, restart policy, what it may write. Throws
   * InstanceNotFound; EngineRefused if the container uses more memory than the new limit.
   */
  resize(
    id: string,
    size: Pick<ContainerSpec, 'cpu_cores' | 'memory_mib' | 'restart_policy' | 'disk_gib'>,
  ): Promise<void>
  /**
   * Removes the container and everything it left on the host, after its output is stored elsewhere; with `discard`, at
   * once. Succeeds if the container is gone or has another engine id than `engineId`.
   */
  remove(id: string, options?: { engineId?: string | undefined; discard?: boolean }): Promise<void>
  /**
   * Calls back with the id at each change of one of this host's containers, until aborted. Calls back with null at
   * each connection to the engine, because earlier changes may have been missed.
   */
  watch(onChange: (id: string | null) => void, signal: AbortSignal): Promise<void>
}

/** What goes on in them. */
export interface ContainerInside {
  /** Usage of those of the given containers that still run. Reads it from the kernel, not from the engine. */
  sample(containers: FoundContainer[]): Promise<ContainerSample[]>
  /** Runs a command in a running container. Throws InstanceNotFound, InstanceNotRunning. */
  exec(id: string, command: string[], size: TerminalSize): Promise<Terminal>
  /**
   * Runs a command in a running container, with its input and output as one stream. The stream fails with what the
   * command writes to stderr. Throws InstanceNotFound, InstanceNotRunning.
   */
  pipe(id: string, command: string[]): Promise<Duplex>
  /** Throws InstanceNotFound. */
  logs(id: string, options: LogOptions): AsyncIterable<LogEntry>
}
