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
  id: string
  state: 'created' | 'running' | 'exited'
  exit_code: number | null
  oom_killed: boolean
  restart_count: number
  started_at: string | null
  health: 'none' | 'starting' | 'healthy' | 'unhealthy'
  image_digest: string
  ports: { container_port: number; protocol: 'tcp' | 'udp'; host_port: number }[]
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

/**
 * Containers of one host. All calls are idempotent by the container's id, and none touches a container
 * that does not carry this platform's labels.
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
   */
  run(spec: ContainerSpec, configVars: Record<string, string>, operationId: string): Promise<FoundContainer>
  find(id: string): Promise<FoundContainer | null>
  /** All of this platform's containers, whatever their state. */
  list(): Promise<FoundContainer[]>
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
  /** Removes it with all that it left on the host. Nothing to remove is success. */
  remove(id: string): Promise<void>
  /** Throws InstanceNotFound. */
  logs(id: string, options: LogOptions): AsyncIterable<LogEntry>
  /**
   * Calls back at each change of one of this platform's containers, until aborted. With null each time it
   * connects to the engine: anything may have changed before.
   */
  watch(onChange: (id: string | null) => void, signal: AbortSignal): Promise<void>
  info(): Promise<{ name: string; version: string; cpu_cores: number; memory_mib: number; disk_gib: number }>
}
