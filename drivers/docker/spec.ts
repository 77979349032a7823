import { createHash } from 'node:crypto'
import type { ContainerCreateOptions, ContainerInspectInfo } from 'dockerode'
import type { ContainerSpec, FoundContainer } from '../containers.ts'
import { logLimits } from '../system/log-files.ts'
import { type BoundPort, portKey } from '../system/host-ports.ts'
import { boundPorts, portOptions } from './port-bindings.ts'

// How a container of this platform is written for the engine, and read back.

export const engineName = (id: string): string => `keelson-${id}`

export const labels = {
  resource: 'keelson.resource',
  kind: 'keelson.kind',
  tenant: 'keelson.tenant',
  operation: 'keelson.operation',
  /** The host whose container it is: several may use one engine. */
  host: 'keelson.host',
  /** Hash of all that cannot be changed in place. */
  spec: 'keelson.spec',
  image: 'keelson.image',
  imageDigest: 'keelson.image_digest',
  /** The host's ports that it keeps while it is stopped, when the engine itself does not hold them. */
  ports: 'keelson.ports',
  /** How many full files of its output stay with it: what is beyond is the host worker's to drop, once it is archived. */
  keptLogs: 'keelson.kept_logs',
} as const

/** Filters the engine's lists down to what hosts made, and lists and events to what this one did. */
export const anyHosts = [labels.host]
export const ours = (hostId: string): string[] => [`${labels.host}=${hostId}`]

/** Name and labels must agree: either alone may be somebody else's. */
export const isOurs = (hostId: string, names: string[], carried: Record<string, string>): boolean =>
  carried[labels.kind] === 'container' &&
  carried[labels.host] === hostId &&
  names.includes(`/${engineName(carried[labels.resource] ?? '')}`)

const mebibyte = 1024 * 1024
const nanos = 1e9

/** Processes and threads in one container: the engine's documentation has no default, so a fork bomb needs one. */
const pidsLimit = 1024

// Of the engine's default set: a raw socket can impersonate neighbours on a shared bridge, and the rest is of
// no use without devices, audit and set-user-id files.
const droppedCapabilities = ['NET_RAW', 'MKNOD', 'AUDIT_WRITE', 'SETFCAP']

type RestartPolicy = ContainerSpec['restart_policy']
type Size = Pick<ContainerSpec, 'cpu_cores' | 'memory_mib'>

const engineRestartPolicy: Record<RestartPolicy, string> = {
  // The engine itself restarts what ends, so that it goes on while the platform is away.
  always: 'unless-stopped',
  on_failure: 'on-failure',
  never: 'no',
}

export const restartPolicy = (policy: RestartPolicy) => ({
  RestartPolicy: { Name: engineRestartPolicy[policy] },
})

/** No swap beside the memory: what a tenant pays for is what the kernel enforces. */
export const sizeLimits = ({ cpu_cores, memory_mib }: Size) => ({
  NanoCpus: Math.round(cpu_cores * nanos),
  Memory: memory_mib * mebibyte,
  MemorySwap: memory_mib * mebibyte,
})

/**
 * The limits until the command has shown that it runs. Setting a container up counts against its own CPU
 * limit: with a tenth of a core that alone takes 0.2 s, measured.
 */
export const startLimits = (size: Size) => sizeLimits({ ...size, cpu_cores: Math.max(size.cpu_cores, 1) })

export interface Made {
  hostId: string
  spec: ContainerSpec
  configVars: Record<string, string>
  operationId: string
  image: { id: string; digest: string }
  ports: BoundPort[]
  /** What may wait on the host beyond the cap, for the archive; 0: the engine itself drops what is beyond the cap. */
  logBacklogMib: number
  /** Whose network namespace it joins: then host name, resolver and ports are that one's. */
  joined: string | null
}

/** The engine's create call for one container. */
export function createOptions(made: Made, address: string): ContainerCreateOptions {
  const { spec, configVars, image, ports, joined } = made
  const { ExposedPorts, PortBindings } = portOptions(address, ports)
  const logs = logLimits(spec.log_cap_mib, made.logBacklogMib)
  return {
    name: engineName(spec.id),
    Image: image.id,
    ...(spec.command.length ? { Cmd: spec.command } : {}),
    ...(spec.entrypoint.length ? { Entrypoint: spec.entrypoint } : {}),
    ...(isHostname(spec.name) && !joined ? { Hostname: spec.name } : {}),
    Env: Object.entries(configVars).map(([key, value]) => `${key}=${value}`),
    Labels: {
      [labels.resource]: spec.id,
      [labels.kind]: 'container',
      [labels.tenant]: spec.tenant_id,
      [labels.operation]: made.operationId,
      [labels.host]: made.hostId,
      [labels.spec]: specHash(spec, configVars, image.digest),
      [labels.image]: spec.image,
      [labels.imageDigest]: image.digest,
      [labels.ports]: ports.map(portKey).join(','),
      ...(made.logBacklogMib ? { [labels.keptLogs]: String(logs.keptFiles) } : {}),
    },
    ...(joined ? {} : { ExposedPorts }),
    ...(spec.health_check ? { Healthcheck: healthCheck(spec.health_check) } : {}),
    HostConfig: {
      ...startLimits(spec),
      RestartPolicy: { Name: 'no' }, // for as long
      ...(joined ? { NetworkMode: joined } : { PortBindings }),
      Init: true, // reaps orphans and passes signals on, which few images' first process does
      // Not `Binds`, which makes a folder that is missing: what is written there would be written to the host.
      Mounts: (spec.mounts ?? []).map(({ host_path, mount_path, read_only }) => ({
        Type: 'bind',
        Source: host_path,
        Target: mount_path,
        ReadOnly: read_only,
      })),
      PidsLimit: pidsLimit,
      CapDrop: droppedCapabilities,
      SecurityOpt: ['no-new-privileges'],
      LogConfig: {
        Type: 'json-file',
        Config: { 'max-size': String(logs.fileBytes), 'max-file': String(logs.files) },
      },
    },
  }
}

/**
 * Equal for two specs that differ only in what can be changed in place or by the host's choice: size,
 * restart policy, name, host ports.
 */
export function specHash(spec: ContainerSpec, configVars: Record<string, string>, digest: string): string {
  const { command, entrypoint, health_check, log_cap_mib } = spec
  const vars = Object.entries(configVars).toSorted(([a], [b]) => (a < b ? -1 : 1))
  const fixed = [digest, command, entrypoint, health_check, log_cap_mib, vars, spec.mounts ?? []]
  return createHash('sha256').update(JSON.stringify(fixed)).digest('hex')
}

export const hasRun = (info: ContainerInspectInfo): boolean => !info.State.StartedAt.startsWith('0001-')

export function toFound(info: ContainerInspectInfo): FoundContainer {
  const { State: state, Config: config } = info
  const ended = hasRun(info) && (!state.Running || state.Restarting)
  return {
    kind: 'container',
    id: config.Labels[labels.resource] ?? '',
    engine_id: info.Id,
    // Between two tries of the restart policy it counts as running: the engine sees to it, not the platform.
    state: state.Running ? 'running' : hasRun(info) ? 'exited' : 'created',
    exit_code: ended ? state.ExitCode : null,
    oom_killed: state.OOMKilled,
    restart_count: info.RestartCount,
    started_at: hasRun(info) ? new Date(state.StartedAt).toISOString() : null,
    pid: state.Pid || null,
    health: healthOf(state.Health?.Status),
    image_digest: config.Labels[labels.imageDigest] ?? info.Image,
    ports: boundPorts(info.HostConfig.PortBindings ?? {}),
  }
}

const healthCheck = (check: NonNullable<ContainerSpec['health_check']>) => ({
  Test: ['CMD', ...check.command],
  Interval: check.interval_sec * nanos,
  Timeout: check.timeout_sec * nanos,
  Retries: check.retries,
  StartPeriod: check.start_period_sec * nanos,
})

const healthOf = (status: string | undefined): FoundContainer['health'] =>
  status === 'starting' || status === 'healthy' || status === 'unhealthy' ? status : 'none'

// RFC 1123, 2.1. Any other name is the tenant's to choose, but no host name.
const isHostname = (name: string): boolean => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i.test(name)
