import type { Duplex } from 'node:stream'

/** A container as an engine needs to know it. Its id names it there, so that asking twice makes one. */
export interface ContainerSpec {
  id: string
  tenant_id: string
  name: string
  image: string
  /** Pinned once known, so that a restart runs the same bytes. */
  image_digest: string | null
  command: string[]
  entrypoint: string[]
  cpu_cores: number
  memory_mib: number
  restart_policy: 'always' | 'on_failure' | 'never'
  ports: PublishedPort[]
  log_cap_mib: number
  health_check: HealthCheck | null
  /** Folders of the host that are shown in it. */
  mounts?: BindMount[]
  /** What it reads as its resolver, where it has NICs of VPCs: then its network namespace is made for them. */
  network?: { dns_server: string; search_domain: string } | null
}

export interface BindMount {
  host_path: string
  mount_path: string
  read_only: boolean
}

/** `host_port` null: the host chooses one, `kept_port` if that is free still. */
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
  id: string
  /** The engine's own name for it: another one, once it was made anew. */
  engine_id: string
  state: 'created' | 'running' | 'exited'
  exit_code: number | null
  oom_killed: boolean
  restart_count: number
  started_at: string | null
  /** Its first process, as the machine counts; null when it does not run. */
  pid: number | null
  /** Since when it has its network, where that outlives its restarts. */
  network_since?: string
  health: 'none' | 'starting' | 'healthy' | 'unhealthy'
  image_digest: string
  ports: { container_port: number; protocol: 'tcp' | 'udp'; host_port: number }[]
}

/** What a container has used: counters are since it was started. */
export interface Usage {
  cpu_ms: number
  /** Without the page cache that the kernel can drop at once. */
  memory_bytes: number
  net_rx_bytes: number
  net_tx_bytes: number
  disk_read_bytes: number
  disk_write_bytes: number
}

/** What a running container has used by then; counters are since `started_at`. */
export interface ContainerSample extends Usage {
  id: string
  /** RFC 3339, UTC, milliseconds; so is the other. */
  time: string
  started_at: string
}

export interface LogOptions {
  /** The last so many lines; all of them when undefined. */
  lines?: number
  /** Lines at or after this moment: RFC 3339, up to nanoseconds. */
  since?: string
  /** Go on with new lines until the signal aborts or the container is removed. */
  follow?: boolean
  signal?: AbortSignal
}

export interface LogEntry {
  /** When the engine read the line: RFC 3339, UTC, nanoseconds. Entries sort by it. */
  time: string
  stream: 'stdout' | 'stderr'
  line: string
}

export interface PullOptions {
  /** The bytes that the name once stood for; null takes what it stands for now. */
  digest?: string | null
  onProgress?: (text: string) => void
  signal?: AbortSignal
}

export interface TerminalSize {
  cols: number
  rows: number
}

/** A command in a container, with a terminal of its own. */
export interface Terminal {
  /** What the command writes, and what it is to read. Ends when the command has. */
  stream: Duplex
  /** Throws EngineUnavailable. Success also where the command has just ended. */
  resize(size: TerminalSize): Promise<void>
  /** Once the stream has ended. 126 and 127: it could not be started; above 128: a signal ended it. Throws EngineUnavailable. */
  exitCode(): Promise<number>
  /**
   * Ends the command and what runs in its terminal, as hanging up does; after a second, by force. What has a session
   * of its own (`setsid`) lives on. The image has to have `/bin/sh`. Nothing to end is success.
   */
  close(): Promise<void>
}

/** What an engine is, and what its machine has in all. */
export interface EngineDescription {
  name: string
  version: string
  cpu_cores: number
  memory_mib: number
  disk_gib: number
}

/**
 * Containers of one host. All calls are idempotent by the container's id, and none touches a container
 * that does not carry this host's labels.
 */
export interface ContainerEngine {
  /**
   * Makes the image present; returns its digest. What the host has already is not asked of a registry.
   * Throws ImageNotFound, EngineUnavailable.
   */
  pull(image: string, options?: PullOptions): Promise<{ image_digest: string }>
  /**
   * Creates and starts it, or finds it there and running. A container that exists stopped is started as
   * it is, with the present size; if anything else of its spec has changed, it is made anew. A job (restart policy other than `always`) that ends at once with 0 is a
   * success; any other end at once is not. After a failure nothing that this operation made is left.
   * Throws PortInUse, CommandFailed, ImageNotFound, EngineRefused, EngineUnavailable.
   *
   * A spec with a `network` gets a namespace that outlives its restarts. `onNetwork` is called with a process in it before
   * the command starts, to put NICs there; when it throws, the container is not started.
   */
  run(
    spec: ContainerSpec,
    configVars: Record<string, string>,
    operationId: string,
    onNetwork?: (pid: number) => Promise<void>,
  ): Promise<FoundContainer>
  find(id: string): Promise<FoundContainer | null>
  /** All of this host's containers, whatever their state. */
  list(): Promise<FoundContainer[]>
  /** What those of these that run still have used. Asks the machine, not the engine. */
  sample(containers: FoundContainer[]): Promise<ContainerSample[]>
  /**
   * Waits until it has ended, or kills it after `graceSec`; it stays ended, even if the engine restarts.
   * Nothing to stop is success. An aborted call stops waiting: the container ends all the same.
   */
  stop(id: string, graceSec: number, signal?: AbortSignal): Promise<void>
  /**
   * Applies what the engine can change while it runs: cpu, memory, restart policy. Throws
   * InstanceNotFound; EngineRefused when more memory is in use than is asked for.
   */
  resize(id: string, size: Pick<ContainerSpec, 'cpu_cores' | 'memory_mib' | 'restart_policy'>): Promise<void>
  /**
   * Removes it with all that it left on the host, once its output is safe elsewhere; with `discard`, at once. Nothing to
   * remove, or another than `engineId`, is success.
   */
  remove(id: string, options?: { engineId?: string | undefined; discard?: boolean }): Promise<void>
  /** Runs a command in a running container. Throws InstanceNotFound, InstanceNotRunning. */
  exec(id: string, command: string[], size: TerminalSize): Promise<Terminal>
  /** Throws InstanceNotFound. */
  logs(id: string, options: LogOptions): AsyncIterable<LogEntry>
  /**
   * Calls back at each change of one of this host's containers, until aborted. With null each time it
   * connects to the engine: anything may have changed before.
   */
  watch(onChange: (id: string | null) => void, signal: AbortSignal): Promise<void>
}
