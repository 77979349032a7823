import type { Duplex, Readable } from 'node:stream'
import type { LogEntry, LogOptions, Usage } from './containers.ts'

// A Docker Swarm inside machines of the platform: instances whose image runs a Docker Engine. Every call names the
// machine whose engine it asks, by the id of its instance. The engine of a machine is reached only through its host.

/**
 * Connects to the Docker Engine inside a running machine. Throws InstanceNotFound, InstanceNotRunning and
 * EngineUnavailable.
 */
export type DialMachine = (machineId: string) => Promise<Duplex>

export interface SwarmMember {
  /** The Swarm's own id of the node. */
  node_id: string
  /** The id of its instance. */
  machine_id: string
  address: string
  role: 'manager' | 'worker'
  availability: 'active' | 'drain'
  state: 'ready' | 'down'
}

/**
 * The members of a Swarm. All calls are idempotent: each looks before it acts. They throw EngineUnavailable if a
 * machine's engine does not answer, and EngineRefused if it refuses.
 */
export interface SwarmMembership {
  /** Waits until the machine's engine answers. Throws EngineUnavailable after `withinMs`. */
  awaitEngine(machineId: string, withinMs: number, signal?: AbortSignal): Promise<{ version: string }>
  /**
   * Forms a Swarm whose only manager is this machine, which runs no services, or finds the one that it manages. A
   * machine that is in another Swarm leaves that first.
   */
  form(machineId: string, address: string): Promise<SwarmMember>
  /** Whether the machine manages a Swarm. */
  manages(machineId: string): Promise<boolean>
  /** Waits until the machine manages a Swarm. Returns false if it does not within `withinMs`, or has failed to. */
  awaitManager(machineId: string, withinMs: number, signal?: AbortSignal): Promise<boolean>
  /** The token with which workers join the manager's Swarm: a secret. Another host may have the manager. */
  workerToken(managerId: string): Promise<string>
  /**
   * Makes the machine a worker of the manager's Swarm, or finds it there. It leaves any other Swarm first, also one whose
   * manager had the same address.
   */
  join(
    machineId: string,
    address: string,
    manager: { address: string; token: string; node_id: string },
  ): Promise<void>
  members(managerId: string): Promise<SwarmMember[]>
  /**
   * Lets a machine that has joined take services: the manager knows it by its address from then on. Throws
   * EngineUnavailable if the manager does not see it within ten seconds.
   */
  admit(managerId: string, machineId: string, address: string): Promise<void>
  /**
   * Has the member take no further services, and waits until those that it has have ended. Does nothing if it is no
   * member, and does not wait for one that is down. Throws EngineUnavailable after `withinMs`.
   */
  drain(managerId: string, machineId: string, withinMs: number, signal?: AbortSignal): Promise<void>
  /** Removes the member from the manager's list, also if it is down. It need not answer. */
  remove(managerId: string, machineId: string): Promise<void>
  /** Has the machine leave its Swarm. Succeeds if it is in none. */
  leave(machineId: string): Promise<void>
}

/** Up to where the state of a manager is known. `end`: the last bytes before it. */
export interface SwarmStatePosition {
  log: string
  offset: number
  end: Buffer
  snapshot: string
  /** When the log had changed last. */
  changed: string
}

/**
 * What a manager knows of its Swarm, with its keys: a machine with the same address goes on with it as the same manager. Both
 * throw EngineUnavailable.
 */
export interface SwarmStates {
  /**
   * Reads what has been added since `from`; null: all. Pieces after one another are a copy, once there is no more. Returns
   * null if nothing has changed, and `lost` if the state has not only grown.
   */
  read(
    machineId: string,
    from: SwarmStatePosition | null,
  ): Promise<{ piece: Buffer[]; to: SwarmStatePosition; more: boolean } | 'lost' | null>
  /** Gives a copy to a machine, and restarts its engine, which goes on with it. `mark`: another one for each call. */
  put(machineId: string, mark: string, copy: Readable): Promise<void>
  /** Restarts the machine's engine, which is in no Swarm then. */
  forget(machineId: string): Promise<void>
}

/** One task that always runs on one member: a replica of an application. */
export interface SwarmServiceSpec {
  /** The platform's id. No other service of the Swarm has it. */
  id: string
  /** For people who look at the machine: the application's name. */
  name: string
  /** What it belongs to, in the service's and its tasks' labels. */
  labels: Record<string, string>
  /** The member on which it runs. */
  machine_id: string
  image: string
  /** Null: the image's registry needs no login. */
  registry_login: { name: string; password: string } | null
  /** Empty: the image's own. */
  command: string[]
  env: Record<string, string>
  cpu_cores: number
  memory_mib: number
  /** The container's port, and the port of the machine that leads to it. Null: it listens to nothing. */
  port: { container_port: number; machine_port: number } | null
  /** Named volumes of the machine. */
  volumes: { name: string; mount_path: string }[]
  /** Run in the container. Null: none, also if the image has one. */
  health_check: {
    command: string[]
    interval_sec: number
    timeout_sec: number
    retries: number
    start_period_sec: number
  } | null
  /** How long it may take to end after SIGTERM. */
  stop_grace_sec: number
  /** A change starts the task anew, also if nothing else has changed. */
  restarts: number
  /** What only the containers of services have. */
  composed?: ComposedOptions | undefined
}

/** How a container of a service differs from a replica of an application. */
export interface ComposedOptions {
  /** Null: the image's own. */
  entrypoint: string[] | null
  user: string | null
  working_dir: string | null
  hostname: string | null
  /** The networks that it is in, and the names by which others reach it there. Made and removed with the services. */
  networks: { name: string; aliases: string[]; internal: boolean }[]
  ports: { container_port: number; machine_port: number }[]
  /** Those of its volumes that it cannot write to, by their paths. */
  read_only_paths: string[]
  tmpfs: { mount_path: string; size_mib: number | null }[]
  /** The Swarm brings them to the container. */
  files: { mount_path: string; content: string; mode: number }[]
  /** Null: the image's own, if it has one. */
  health_check: SwarmServiceSpec['health_check'] | 'none'
  restart: 'always' | 'on-failure' | 'no'
  stop_signal: string | null
  read_only: boolean
  tty: boolean
  capabilities: { add: string[]; drop: string[] }
}

/** A service as the Swarm has it, with its newest task. */
export interface FoundSwarmService {
  id: string
  machine_id: string
  /** Equal specs have equal hashes. */
  spec_hash: string
  task: {
    /** `starting`: it waits, pulls its image or is not healthy yet. `running`: its process runs and is healthy, if it has a check. */
    state: 'starting' | 'running' | 'ended'
    /** Whether its image is there and its process has begun, also if it has ended since. */
    begun: boolean
    /** It could not be started at all, such as for want of its image. */
    rejected: boolean
    /** It has ended with exit code 0, and does not start again. */
    completed: boolean
    /** Why it does not run, or why the one before it ended, in plain words without addresses and ids. */
    reason: string | null
    exit_code: number | null
    /** The engine's id of its container, on its machine. */
    container_id: string | null
    started_at: string | null
  } | null
  /** How many of its tasks have failed since its spec last changed. */
  failures: number
}

/** The services of a Swarm. A service without the platform's labels is never touched. */
export interface SwarmServices {
  /**
   * Brings the Swarm to exactly these services: creates, updates (the old task ends before the new one starts), and
   * removes. What is as wanted is not touched. Tries all of them, then throws the first failure, but none that is permanent
   * and is of a service without this id in its labels: that fails the work of its own owner.
   */
  apply(
    managerId: string,
    services: SwarmServiceSpec[],
    ownerId: string | null,
    signal?: AbortSignal,
  ): Promise<void>
  list(managerId: string): Promise<FoundSwarmService[]>
}

/**
 * The output of a service on its machine: of its present task, and of the former ones whose containers are kept. To follow
 * ends with the present task. Throws InstanceNotFound if the machine has no container of it.
 */
export type TaskLogs = (
  machineId: string,
  serviceId: string,
  options: LogOptions,
) => Promise<AsyncIterable<LogEntry>>

/** Commands in the tasks of services, which run in the task's container beside its process. */
export interface TaskCommands {
  /**
   * Runs `command` with /bin/sh until it ends, is late, or the signal aborts; then ends it. `mark` names the run in the
   * command's environment, which has `env` beside the container's own. Throws InstanceNotRunning.
   */
  run(
    machineId: string,
    serviceId: string,
    of: { command: string; mark: string; timeoutSec: number; env?: Record<string, string> },
    signal?: AbortSignal,
  ): Promise<TaskCommandResult>
  /** Whether a container of the service runs on the machine. */
  runs(machineId: string, serviceId: string): Promise<boolean>
  /** Ends the run with this mark, if it still runs. */
  end(machineId: string, serviceId: string, mark: string): Promise<void>
}

export interface TaskCommandResult {
  /** Null: it could not be ended. */
  exit_code: number | null
  /** The last 32 KiB of what it wrote. */
  output: string
  timed_out: boolean
}

/** Has the machine's engine pull an image, unless it has it. Throws ImageNotFound, EngineUnavailable. */
export type PullIntoMachine = (machineId: string, image: string, signal?: AbortSignal) => Promise<void>

/** What the containers of a machine's services have used, and how those ended that have. */
export type TaskSamples = (machineId: string) => Promise<MachineTasks>

/** `none`: it has no health check. */
export type TaskHealth = 'none' | 'starting' | 'healthy' | 'unhealthy'

export interface MachineTasks {
  /** Of each running container, as it was at `time`. Counters start at `started_at`. */
  running: (Usage & { service_id: string; time: string; started_at: string })[]
  /** Of each running container. */
  healths: { service_id: string; health: TaskHealth }[]
  /** The engine keeps the last few of each service. */
  ended: EndedTask[]
}

export interface EndedTask {
  service_id: string
  engine_id: string
  exit_code: number
  ended_at: string
}

/** How many containers with this label run on a machine. */
export type RunningContainers = (machineId: string, label: { name: string; value: string }) => Promise<number>

export interface MachineVolumes {
  /**
   * Removes the volumes with this label but those named. Waits until no container uses them; throws EngineRefused after
   * `withinSec`.
   */
  keep(
    machineId: string,
    label: { name: string; value: string },
    names: string[],
    withinSec: number,
    signal?: AbortSignal,
  ): Promise<void>
}

/** Runs a command in a machine and joins its input and output to the stream. Throws as DialMachine. */
export type PipeMachine = (machineId: string, command: string[]) => Promise<Duplex>

/** Archives that come to a machine in parts. */
export interface Uploads {
  /** How many bytes of it are there. */
  offset(machineId: string, id: string): Promise<number>
  /**
   * Adds bytes at the offset, at most so many. They stay as far as they came if the stream breaks. Returns the new offset;
   * if that is another one at the beginning, nothing is added. Throws MachineDiskFull, EngineUnavailable.
   */
  append(
    machineId: string,
    id: string,
    part: { offset: number; atMost: number; bytes: Readable },
  ): Promise<number>
  /** Its SHA-256 in hex; empty if there is none of it. */
  digest(machineId: string, id: string): Promise<string>
  read(machineId: string, id: string): Promise<Readable>
  /** Succeeds if there is none. */
  remove(machineId: string, id: string): Promise<void>
}

/** The folders of applications on a machine: /opt/apps/NAME. */
export interface AppFolders {
  /**
   * Writes a version of a folder from a tar. `finish` puts it in its place, whole, and returns its path; the last three
   * versions are kept. Throws MachineDiskFull, EngineUnavailable.
   */
  put(
    machineId: string,
    name: string,
    version: string,
    tar: Readable,
  ): Promise<{ finish: () => Promise<string> }>
  /** Removes what there is of a version. */
  remove(machineId: string, name: string, version: string): Promise<void>
}
