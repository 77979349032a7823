import type { IoLimits } from '../linux/block-devices.ts'
import { createHash } from 'node:crypto'
import type { ContainerCreateOptions, ContainerInspectInfo } from 'dockerode'
import type { ContainerSpec, FoundContainer } from '../containers.ts'
import { logLimits } from '../system/log-files.ts'
import { type BoundPort, portKey } from '../system/host-ports.ts'
import { layerQuota } from './layer-quota.ts'
import { boundPorts, portOptions } from './port-bindings.ts'

// Converts containers to and from the engine's format.

export const engineName = (id: string): string => `keelson-${id}`

export const labels = {
  resource: 'keelson.resource',
  kind: 'keelson.kind',
  tenant: 'keelson.tenant',
  operation: 'keelson.operation',
  /** The host that owns the container: several hosts may share one engine. */
  host: 'keelson.host',
  /** Hash of everything that cannot be changed in place. */
  spec: 'keelson.spec',
  image: 'keelson.image',
  imageDigest: 'keelson.image_digest',
  /** Host ports that a stopped container keeps; the engine does not reserve them. */
  ports: 'keelson.ports',
  /** Number of full log files that stay with the container. The host worker drops the rest after archiving. */
  keptLogs: 'keelson.kept_logs',
  /** On machines of deploy servers. */
  machine: 'keelson.machine',
  /** On runners of AI workflows: the runner's id. */
  runner: 'keelson.runner',
} as const

/** Engine filters: containers of any host, and of this host. */
export const anyHosts = [labels.host]
export const ours = (hostId: string): string[] => [`${labels.host}=${hostId}`]

/** Checks both name and labels: one alone may belong to another program. */
export const isOurs = (hostId: string, names: string[], carried: Record<string, string>): boolean =>
  carried[labels.kind] === 'container' &&
  carried[labels.host] === hostId &&
  names.includes(`/${engineName(carried[labels.resource] ?? '')}`)

const mebibyte = 1024 * 1024
const nanos = 1e9

/** Limit on processes and threads per container, against fork bombs: the engine documents no default. */
const pidsLimit = 1024

// Dropped from the engine's default set: raw sockets can impersonate neighbours on a shared bridge; the rest is
// useless without devices, audit and set-user-id files.
const droppedCapabilities = ['NET_RAW', 'MKNOD', 'AUDIT_WRITE', 'SETFCAP']

// The engine's default set, which an engine inside gives to its own containers, the rights to mount and to make networks, and
// SYS_PTRACE: without it root cannot enter the namespaces of a process of another user, so that health checks and tasks fail in
// each container that does not run as root. Not among them: modules, raw I/O, the clock, reboot, the system log.
const machineCapabilities = [
  'AUDIT_WRITE',
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'MKNOD',
  'NET_ADMIN',
  'NET_BIND_SERVICE',
  'NET_RAW',
  'SETFCAP',
  'SETGID',
  'SETPCAP',
  'SETUID',
  'SYS_ADMIN',
  'SYS_CHROOT',
  'SYS_PTRACE',
]
/** More than a server with thousands of connections needs. An engine with a lower limit of its own gives that. */
const openFiles = 65_536

/** Each container's share of the disk with the engine's files: `bytes` and `operations` a second, each way. */
const limitTo = (Name: string, most: number) => ({ Name, Soft: most, Hard: most })

const ioLimits = ({ disk, bytes, operations }: IoLimits) => ({
  BlkioDeviceReadBps: [{ Path: disk, Rate: bytes }],
  BlkioDeviceWriteBps: [{ Path: disk, Rate: bytes }],
  BlkioDeviceReadIOps: [{ Path: disk, Rate: operations }],
  BlkioDeviceWriteIOps: [{ Path: disk, Rate: operations }],
})

/** Its applications' processes are in the machine's group. */
const machinePidsLimit = 16_384

/** `nobody` of most images. Not the image's own choice: another image could be root's. */
const runnerUser = '65534:65534'
/** A runner, its expression processes and their threads. */
const runnerPidsLimit = 256
const runnerTemporary = 'rw,noexec,nosuid,nodev,size=16m'

/** What confines a container. A machine runs an engine of its own, below its own control groups. */
const confinement = ({ spec: { machine, runner }, mostOpenFiles, io }: Made) =>
  machine
    ? {
        PidsLimit: machinePidsLimit,
        CapDrop: ['ALL'],
        CapAdd: machineCapabilities,
        CgroupnsMode: 'private' as const,
        // The engine's default filter refuses the keyrings of inner containers. Masked and read-only paths stay.
        SecurityOpt: ['seccomp=unconfined', 'apparmor=unconfined'],
      }
    : {
        PidsLimit: runner ? runnerPidsLimit : pidsLimit,
        CapDrop: runner ? ['ALL'] : droppedCapabilities,
        ...(runner ? { ReadonlyRootfs: true, Tmpfs: { '/tmp': runnerTemporary } } : {}),
        SecurityOpt: ['no-new-privileges'],
        Ulimits: [
          limitTo('nofile', Math.min(openFiles, mostOpenFiles)),
          // A core would be written where the host's kernel says, on the host's disk.
          limitTo('core', 0),
        ],
        ...(io ? ioLimits(io) : {}),
      }

type RestartPolicy = ContainerSpec['restart_policy']
type Size = Pick<ContainerSpec, 'cpu_cores' | 'memory_mib' | 'runner'>

const engineRestartPolicy: Record<RestartPolicy, string> = {
  // The engine restarts the container, so it keeps running while the platform is down.
  always: 'unless-stopped',
  on_failure: 'on-failure',
  never: 'no',
}

export const restartPolicy = (policy: RestartPolicy) => ({
  RestartPolicy: { Name: engineRestartPolicy[policy] },
})

/** Whether the engine starts it again in some case. */
export const isRestarted = ({ HostConfig }: ContainerInspectInfo): boolean =>
  !['', engineRestartPolicy.never].includes(HostConfig.RestartPolicy?.Name ?? '')

/** The engine's weight of a whole core. */
const sharesOfCore = 1024

/**
 * No swap: the kernel enforces the memory that the tenant pays for. A runner waits most of its time: it may use a whole core as
 * long as nobody else wants it, and what it pays for is its share when others do.
 */
export const sizeLimits = ({ cpu_cores, memory_mib, runner }: Size) => ({
  NanoCpus: Math.round((runner ? Math.max(cpu_cores, 1) : cpu_cores) * nanos),
  ...(runner ? { CpuShares: Math.round(cpu_cores * sharesOfCore) } : {}),
  Memory: memory_mib * mebibyte,
  MemorySwap: memory_mib * mebibyte,
})

/**
 * Limits until the command is known to run. Container setup counts against its CPU limit: with a tenth of a core it
 * takes 0.2 s, measured.
 */
export const startLimits = (size: Size) => sizeLimits({ ...size, cpu_cores: Math.max(size.cpu_cores, 1) })

export interface Made {
  hostId: string
  spec: ContainerSpec
  configVars: Record<string, string>
  operationId: string
  image: { id: string; digest: string }
  ports: BoundPort[]
  /** Output beyond the cap that may wait on the host for archiving. 0: the engine drops it. */
  logBacklogMib: number
  /** The most open files that the engine can give a process. */
  mostOpenFiles: number
  io: IoLimits | null
  /** Whether quotas hold layers to `disk_gib`. */
  quotas: boolean
  /** Whether it joins a pause container, which then carries host name, resolver and ports. */
  joined: boolean
  /** The engine's network mode; null for its default network. */
  network: string | null
}

/** The engine's create call for one container. */
export function createOptions(made: Made, address: string): ContainerCreateOptions {
  const { spec, configVars, image, ports, joined, network } = made
  const { ExposedPorts, PortBindings } = portOptions(address, ports)
  const logs = logLimits(spec.log_cap_mib, made.logBacklogMib)
  return {
    name: engineName(spec.id),
    Image: image.id,
    ...(spec.command.length ? { Cmd: spec.command } : {}),
    ...(spec.entrypoint.length ? { Entrypoint: spec.entrypoint } : {}),
    // On a network of the host's own, the engine would answer all its containers, of any tenant, for the name.
    ...(isHostname(spec.name) && network === null ? { Hostname: spec.name } : {}),
    ...(spec.runner ? { User: runnerUser } : {}),
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
      ...(spec.machine ? { [labels.machine]: 'true' } : {}),
      ...(spec.runner ? { [labels.runner]: spec.runner } : {}),
      ...(made.logBacklogMib ? { [labels.keptLogs]: String(logs.keptFiles) } : {}),
    },
    ...(joined ? {} : { ExposedPorts }),
    // An image's own check would run as often as its maker likes, outside the container's limits.
    Healthcheck: spec.health_check ? healthCheck(spec.health_check) : { Test: ['NONE'] },
    HostConfig: {
      ...startLimits(spec),
      RestartPolicy: { Name: 'no' }, // until `watched` sets it
      ...(network ? { NetworkMode: network } : {}),
      ...(joined ? {} : { PortBindings }),
      Init: true, // reaps orphans and forwards signals, which few images' first process does
      // Not `Binds`: it creates a missing folder on the host, and writes would land on the host's disk.
      Mounts: (spec.mounts ?? []).map(({ host_path, mount_path, read_only }) => ({
        Type: 'bind',
        Source: host_path,
        Target: mount_path,
        ReadOnly: read_only,
      })),
      ...confinement(made),
      ...(made.quotas && spec.disk_gib ? layerQuota(spec.disk_gib) : {}),
      LogConfig: {
        Type: 'json-file',
        Config: { 'max-size': String(logs.fileBytes), 'max-file': String(logs.files) },
      },
    },
  }
}

/** Ignores what can change in place or what the host chooses: size, restart policy, name, host ports. */
export function specHash(spec: ContainerSpec, configVars: Record<string, string>, digest: string): string {
  const { command, entrypoint, health_check, log_cap_mib, machine = false, runner } = spec
  const vars = Object.entries(configVars).toSorted(([a], [b]) => (a < b ? -1 : 1))
  const all = [
    digest,
    command,
    entrypoint,
    health_check,
    log_cap_mib,
    vars,
    spec.mounts ?? [],
    machine,
    runner,
  ]
  return createHash('sha256').update(JSON.stringify(all)).digest('hex')
}

export const hasRun = (info: ContainerInspectInfo): boolean => !info.State.StartedAt.startsWith('0001-')

export function toFound(info: ContainerInspectInfo): FoundContainer {
  const { State: state, Config: config } = info
  const ended = hasRun(info) && (!state.Running || state.Restarting)
  return {
    kind: 'container',
    ...(config.Labels[labels.machine] ? { machine: true } : {}),
    ...(config.Labels[labels.runner] ? { runner: config.Labels[labels.runner] } : {}),
    id: config.Labels[labels.resource] ?? '',
    engine_id: info.Id,
    // Between two restarts it counts as running: the engine restarts it, not the platform.
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

// RFC 1123, 2.1. Other names are allowed for an instance, but cannot be host names.
const isHostname = (name: string): boolean => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i.test(name)
