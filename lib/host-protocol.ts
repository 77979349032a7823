import { z } from 'zod'

// What a host and the API say to each other outside workflows. The paths are in api/compute/host-protocol.ts.

/** An Ed25519 public key. The private half never leaves the host. */
export const PublicKey = z.strictObject({
  kty: z.literal('OKP'),
  crv: z.literal('Ed25519'),
  x: z.string().max(64),
})

export const Capacity = z.strictObject({
  cpu_cores: z.number().positive(),
  memory_mib: z.int().positive(),
  disk_gib: z.int().nonnegative(),
})

/** Enrolment may be repeated with the same token and key: a host killed half-way asks again. */
export const Enrolment = z.strictObject({
  token: z.string().max(200),
  public_key: PublicKey,
  name: z.string().max(63),
  /** Where the API reaches this host's data plane. */
  data_plane_url: z.url(),
  /** Where clients reach published ports. */
  address: z.string().max(255),
  capacity: Capacity,
})

/** The API's public keys: tokens that it sends to the data plane are signed with one of them. */
export const JsonWebKeys = z.object({ keys: z.array(z.record(z.string(), z.unknown())) })
export const Enrolled = z.object({ host_id: z.string(), jwks: JsonWebKeys })

/** Every kind of instance; what each is, is in models/compute/instance-kinds.ts. */
export const instanceKindNames = ['container', 'microvm', 'vm'] as const
export type InstanceKindName = (typeof instanceKindNames)[number]

/** What the engine says of an instance that carries this platform's labels. */
export const ObservedInstance = z.strictObject({
  id: z.string(),
  kind: z.enum(instanceKindNames),
  state: z.enum(['created', 'running', 'suspended', 'exited']),
  exit_code: z.int().nullable(),
  oom_killed: z.boolean(),
  restart_count: z.int(),
  started_at: z.iso.datetime().nullable(),
  health: z.enum(['none', 'starting', 'healthy', 'unhealthy']),
  /** How a machine ended that was not told to, and had no command that ended. */
  ended_by: z.enum(['shut_down', 'restarted', 'panicked', 'killed']).nullable(),
})

/** What a host has of a disk. `leftover`: something that bears its id, and no whole disk. */
export const ObservedDisk = z.strictObject({
  kind: z.literal('disk'),
  id: z.string(),
  state: z.enum(['detached', 'attached', 'broken', 'migrating', 'leftover']),
})

/** What is wanted of a disk that a host has. `as_is`: an operation sees to it. */
export const WantedDisk = z.object({
  kind: z.literal('disk'),
  id: z.string(),
  instance_id: z.string().nullable(),
  mount_path: z.string().nullable(),
  read_only: z.boolean(),
  /** The operation that moves it. */
  moved_by: z.string().nullable(),
  state: z.enum(['attached', 'detached', 'as_is']),
})

/** How the target of a migration reaches the source, and by which key. */
export const DiskTransfer = z.strictObject({
  address: z.string().max(255),
  port: z.int().min(1).max(65535),
  key: z.string().max(200),
  size_bytes: z.int().nonnegative(),
  contents: z.array(
    z.strictObject({
      snapshot: z.string().nullable(),
      allocated_bytes: z.int().nonnegative(),
    }),
  ),
})

/** How the host to which a machine moves reaches the one where it is, and by which key. */
export const MachineTransfer = z.strictObject({
  address: z.string().max(255),
  port: z.int().min(1).max(65535),
  key: z.string().max(4096),
  root_disk_bytes: z.int().nonnegative(),
  suspended: z
    .object({
      at: z.string(),
      memory_bytes: z.int().nonnegative(),
      root_disk_bytes: z.int().nonnegative(),
      engine_version: z.string(),
      tsc_khz: z.number(),
    })
    .nullable(),
  record: z.string(),
})

/** `accelerator`: found by booting, which alone tells. */
export const MachinesOfHost = z.strictObject({
  name: z.string(),
  version: z.string(),
  accelerator: z.enum(['kvm', 'tcg']),
  kernel: z.string(),
})

/** Something of whatever kind on a host; what else is said of it depends on the kind. */
export const ThingOnHost = z.looseObject({ kind: z.string(), id: z.string(), state: z.string() })

/** Complete: what is not among the things is not on the host. */
export const HostReport = z.strictObject({
  data_plane_url: z.url(),
  address: z.string().max(255),
  capacity: Capacity,
  engine: z.strictObject({ name: z.string(), version: z.string() }),
  /** Where other hosts reach this one's VPCs; null where they do not. */
  underlay_address: z.ipv4().nullable(),
  /** What runs its microVMs and VMs; null where nothing does, or it is not known yet. */
  machines: MachinesOfHost.nullable(),
  /** What can run on it. */
  kinds: z.array(z.enum(instanceKindNames)),
  things: z.array(ThingOnHost),
  /** How long it took to look at all that: so old is what it tells, when it is sent. */
  age_ms: z.int().nonnegative(),
})

const counter = z.number().nonnegative()

/**
 * What an instance has used by this time. Counters are since it was started, and never since the sample before: one that
 * is lost or told twice changes no sum.
 */
export const InstanceSample = z.strictObject({
  id: z.string(),
  time: z.iso.datetime(),
  started_at: z.iso.datetime(),
  cpu_ms: counter,
  memory_bytes: counter,
  net_rx_bytes: counter,
  net_tx_bytes: counter,
  disk_read_bytes: counter,
  disk_write_bytes: counter,
  /** To be kept in the record by minute too: the first of a minute, and the first and the last of a run. */
  by_minute: z.boolean(),
})

export const sampleEveryMs = 10_000
/** What a body may hold. */
export const samplesPerMessage = 1_000
export const HostSamples = z.strictObject({ samples: z.array(InstanceSample).max(samplesPerMessage) })

const Hash = z.string().regex(/^[0-9a-f]{64}$/)
/** A container's as its engine gave it, a machine's as its driver did. */
const EngineId = z.union([Hash, z.uuid()])

/**
 * A part of a file of a container's output, which the body is, compressed with gzip: whole lines, in the engine's own form.
 * The host sends each container's in order, the oldest first, one after the other.
 */
export const LogPiece = z.strictObject({
  engine_id: EngineId,
  engine_created_at: z.iso.datetime({ precision: null }),
  file: Hash,
  /** Where in the file it begins, and how long it is. */
  from: z.coerce.number().int().nonnegative(),
  bytes: z.coerce.number().int().positive(),
  /** The engine may have dropped output before it. */
  after_gap: z.enum(['true', 'false']),
})
/** Of that file the archive has all up to there: a piece that does not begin there was not taken. */
export const LogPieceTaken = z.strictObject({ kept_to: z.int().nonnegative() })

export const logPieceBytes = 4 * 1024 * 1024
/** What does not compress grows by a thousandth. */
export const logPieceBodyKib = 4 * 1024 + 64
export const logPieceType = 'application/gzip'

/** In a host's answer of what it still has of a container's output: one line before the bytes of each file. */
export const LogFileHeader = z.strictObject({
  ...LogPiece.pick({ engine_id: true, engine_created_at: true, file: true }).shape,
  bytes: z.int().nonnegative(),
  after_gap: z.boolean(),
})

export const ReportAnswer = z.object({
  jwks: JsonWebKeys,
  /** Things of the report that are another host's by now, or nobody's: to be removed here. */
  not_yours: z.array(z.object({ kind: z.string(), id: z.string() })),
  /** What is wanted of things of the report one by one, where the platform says so. */
  things: z.array(ThingOnHost),
  /** By part of the host: the version of the whole that is wanted, for the host to ask for. */
  wanted: z.record(z.string(), z.string()),
})

const Interface = z.object({ mac_address: z.string(), ip_address: z.string() })
const SubnetOnHost = z.object({
  id: z.string(),
  vpc_id: z.string(),
  tenant_id: z.string(),
  cidr: z.string(),
  gateway_ip: z.string(),
  nat: z.boolean(),
  vni: z.int(),
  peers: z.array(z.string()),
  dhcp: z
    .object({
      range: z.object({ start: z.string(), end: z.string() }).nullable(),
      lease_time_sec: z.int(),
      dns_servers: z.array(z.string()),
      domain_name: z.string(),
      static_leases: z.array(Interface),
    })
    .nullable(),
  hosts: z.array(Interface),
  names: z.array(z.object({ name: z.string(), ip_address: z.string() })),
})

/** All that a host is to have of VPCs. What is not in it goes. */
export const HostNetworks = z.object({
  version: z.string(),
  /** Every subnet of each VPC that has a member here. */
  subnets: z.array(SubnetOnHost),
  /** Of the instances that are here. */
  nics: z.array(
    Interface.extend({
      id: z.string(),
      instance_id: z.string(),
      vpc_id: z.string(),
      subnet_id: z.string(),
      default_route: z.boolean(),
    }),
  ),
})
export type HostNetworks = z.infer<typeof HostNetworks>

export type PublicKey = z.infer<typeof PublicKey>
export type Capacity = z.infer<typeof Capacity>
export type Enrolment = z.infer<typeof Enrolment>
export type Enrolled = z.infer<typeof Enrolled>
export type ObservedInstance = z.infer<typeof ObservedInstance>
export type ObservedDisk = z.infer<typeof ObservedDisk>
export type WantedDisk = z.infer<typeof WantedDisk>
export type MachinesOfHost = z.infer<typeof MachinesOfHost>
export type MachineTransfer = z.infer<typeof MachineTransfer>
export type DiskTransfer = z.infer<typeof DiskTransfer>
export type InstanceSample = z.infer<typeof InstanceSample>
export type HostSamples = z.infer<typeof HostSamples>
export type LogPiece = z.infer<typeof LogPiece>
export type LogFileHeader = z.infer<typeof LogFileHeader>
export type ThingOnHost = z.infer<typeof ThingOnHost>
export type HostReport = z.infer<typeof HostReport>
export type ReportAnswer = z.infer<typeof ReportAnswer>

/** A host signs its requests itself: EdDSA, `typ: host+jwt`, sub = iss = host id, this audience, 60 s. */
export const internalAudience = 'keelson-internal'
export const hostTokenType = 'host+jwt'

/** The API signs what it asks of a host: EdDSA, `typ: plane+jwt`, audience `host:<id>`, sub `<instance>:<verb>`, a `jti` used once, 30 s. */
export const planeTokenType = 'plane+jwt'
export const planeAudience = (hostId: string): string => `host:${hostId}`
export type PlaneVerb = 'logs' | 'archive' | 'console'
export const planeSubject = (instanceId: string, verb: PlaneVerb): string => `${instanceId}:${verb}`
export const planeTokenSec = 30

/** One line of `GET /containers/{id}/logs`. */
export const LogLine = z.object({
  time: z.iso.datetime({ precision: null }).describe('When the engine read the line (UTC)'),
  stream: z.enum(['stdout', 'stderr']),
  line: z.string(),
})
export type LogLine = z.infer<typeof LogLine>

export const ConsoleSize = z.strictObject({
  cols: z.coerce.number().int().min(1).max(1000),
  rows: z.coerce.number().int().min(1).max(1000),
})
/** A text frame from a console's client. Binary frames are what is typed, and what is to be shown. */
export const ConsoleMessage = z.strictObject({
  type: z.literal('resize'),
  cols: z.int().min(1).max(1000),
  rows: z.int().min(1).max(1000),
})
