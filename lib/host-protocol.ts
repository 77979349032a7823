import { createHash, X509Certificate } from 'node:crypto'
import { z } from 'zod'
import { PublishablePorts } from './port-ranges.ts'

// Messages between a host and the API, outside workflows. The paths are in api/compute/host-protocol.ts.

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

/** Where the API connects to a host's data plane. */
const PlaneUrl = z.url({ protocol: /^https$/ })
/** The certificate of a host's data plane, PEM. The API talks to no other, whatever answers at the address. */
const PlaneCertificate = z.string().max(4096).refine(isCertificate, 'must be a certificate (PEM)')

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0
  } catch {
    return false
  }
}

/** A host may repeat its enrolment with the same token and key, so a host that was killed half-way can retry. */
export const Enrolment = z.strictObject({
  token: z.string().max(200),
  public_key: PublicKey,
  name: z.string().max(63),
  data_plane_url: PlaneUrl,
  data_plane_certificate: PlaneCertificate,
  /** Where clients connect to published ports. */
  address: z.string().max(255),
  capacity: Capacity,
})

/** The API's public keys. It signs its tokens for the data plane with one of them. */
export const JsonWebKeys = z.object({ keys: z.array(z.record(z.string(), z.unknown())) })
export const Enrolled = z.object({ host_id: z.string(), jwks: JsonWebKeys })

/** All kinds of instances; models/compute/instance-kinds.ts describes them. */
export const instanceKindNames = ['container', 'microvm', 'vm'] as const
export type InstanceKindName = (typeof instanceKindNames)[number]
/**
 * What a host may be equipped to run. Each thing has a reservation and may have NICs. `machine` and `vm_machine`: a
 * container and a VM that run an engine of their own, for a deploy server. `runner`: a container without a network, which
 * a host that does not know it would give one.
 */
export const placedKindNames = [
  ...instanceKindNames,
  'load_balancer',
  'machine',
  'vm_machine',
  'runner',
] as const
export type PlacedKindName = (typeof placedKindNames)[number]

/** What the engine reports about an instance with this platform's labels. */
export const ObservedInstance = z.strictObject({
  id: z.string(),
  kind: z.enum(instanceKindNames),
  /** `unknown`: the engine did not tell in time. The other fields are then of an earlier report, if there was one. */
  state: z.enum(['created', 'running', 'suspended', 'exited', 'unknown']),
  exit_code: z.int().nullable(),
  oom_killed: z.boolean(),
  restart_count: z.int(),
  /** It ended again and again, each time soon after its start, and is restarted after longer and longer pauses. */
  crash_looping: z.boolean(),
  /** A machine that runs, but stands still, since its host has no room for what it writes. */
  waits_for_room: z.boolean().default(false),
  /** A running container whose writes outside its disks fail: it has written as much as it may. */
  layer_full: z.boolean().default(false),
  started_at: z.iso.datetime().nullable(),
  health: z.enum(['none', 'starting', 'healthy', 'unhealthy']),
  /**
   * Why it ended without a stop request and without its command ending. A container: `disk_full`, stopped by its host
   * because it had written more than it may. A machine: the others.
   */
  ended_by: z.enum(['shut_down', 'restarted', 'panicked', 'killed', 'disk_full']).nullable(),
})

/**
 * A disk found on a host. `failing`: writes to it fail. `leftover`: files or other traces with the disk's id, but no complete disk.
 */
export const ObservedDisk = z.strictObject({
  kind: z.literal('disk'),
  id: z.string(),
  state: z.enum(['detached', 'attached', 'broken', 'failing', 'migrating', 'leftover']),
})

/** The wanted state of a disk on a host. `as_is`: an operation is changing it, so the host must not. */
export const WantedDisk = z.object({
  kind: z.literal('disk'),
  id: z.string(),
  instance_id: z.string().nullable(),
  mount_path: z.string().nullable(),
  read_only: z.boolean(),
  /** Such a disk is never mounted by a host. */
  written_by_machine: z.boolean(),
  /** The operation that is moving the disk. */
  moved_by: z.string().nullable(),
  state: z.enum(['attached', 'detached', 'as_is']),
})

/** Where the target of a migration reads the disk, and the key. */
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

/** Where the target host reads a machine that is moving, and the key. */
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

/** `accelerator` is found by booting a guest, the only reliable test. */
export const MachinesOfHost = z.strictObject({
  name: z.string(),
  version: z.string(),
  accelerator: z.enum(['kvm', 'tcg']),
  kernel: z.string(),
})

/** A thing of any kind on a host; its other fields depend on the kind. */
export const ThingOnHost = z.looseObject({ kind: z.string(), id: z.string(), state: z.string() })

/** A public key of WireGuard: 32 bytes in base64. */
const TunnelKey = z.string().regex(/^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/)

/** What a host sends every 10 s without waiting for an engine. It alone decides whether the host is reachable. */
export const SignOfLife = z.strictObject({
  /** For how long the engine of its containers has not answered; null: it answers. */
  engine_silent_ms: z.int().nonnegative().nullable(),
})

/** Complete, except for `unseen`: a thing that is not listed is not on the host. */
export const HostReport = z.strictObject({
  data_plane_url: PlaneUrl,
  /** A new one replaces the former. */
  data_plane_certificate: PlaneCertificate,
  address: z.string().max(255),
  capacity: Capacity,
  engine: z.strictObject({ name: z.string(), version: z.string() }),
  /** Where other hosts reach this host's VPCs; null if they cannot. */
  underlay_address: z.ipv4().nullable(),
  /** The public key of its tunnel to other hosts; null without one. */
  tunnel_key: TunnelKey.nullable().default(null),
  published_ports: PublishablePorts,
  /** The engine of its microVMs and VMs; null if there is none, or if it is not known yet. */
  machines: MachinesOfHost.nullable(),
  /** The kinds of instances that this host can run, and whether it can run load balancers. */
  kinds: z.array(z.enum(placedKindNames)),
  things: z.array(ThingOnHost),
  /** Kinds of things that could not be looked at in time: the report says nothing of them. */
  unseen: z.array(z.string()),
  /** How long collecting the report took: the age of its content when it is sent. */
  age_ms: z.int().nonnegative(),
})

const counter = z.number().nonnegative()

/**
 * What an instance has used up to `time`. Counters start when the instance starts, not at the previous sample, so a
 * lost or repeated sample does not change a sum.
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
  /** Also store this sample in the record by minute: the first of a minute, and the first and last of a run. */
  by_minute: z.boolean(),
})

export const sampleEveryMs = 10_000
/** The limit of one request body. */
export const samplesPerMessage = 1_000
export const HostSamples = z.strictObject({ samples: z.array(InstanceSample).max(samplesPerMessage) })

const Hash = z.string().regex(/^[0-9a-f]{64}$/)
/** A container's id comes from its engine, a machine's from its driver. */
const EngineId = z.union([Hash, z.uuid()])

/**
 * A part of a log file of a container; the body has its bytes, compressed with gzip: whole lines in the engine's
 * format. The host sends each container's parts in order, oldest first, one at a time.
 */
export const LogPiece = z.strictObject({
  engine_id: EngineId,
  engine_created_at: z.iso.datetime({ precision: null }),
  file: Hash,
  /** The part's offset and length in the file. */
  from: z.coerce.number().int().nonnegative(),
  bytes: z.coerce.number().int().positive(),
  /** The engine may have dropped output before this part. */
  after_gap: z.enum(['true', 'false']),
})
/** The archive has the file up to this offset. It takes only a part that begins there. */
export const LogPieceTaken = z.strictObject({ kept_to: z.int().nonnegative() })

export const logPieceBytes = 4 * 1024 * 1024
/** Incompressible data grows by a thousandth. */
export const logPieceBodyKib = 4 * 1024 + 64
export const logPieceType = 'application/gzip'
/** The code of the refusal if the platform's store has no room. */
export const storeFullCode = 'store_full'

/** One line before the bytes of each file, in a host's answer with the output it still has of a container. */
export const LogFileHeader = z.strictObject({
  ...LogPiece.pick({ engine_id: true, engine_created_at: true, file: true }).shape,
  bytes: z.int().nonnegative(),
  after_gap: z.boolean(),
})

export const ReportAnswer = z.object({
  jwks: JsonWebKeys,
  /** Where the platform reaches the host's data plane: only at the address that it enrolled with. */
  data_plane_url: z.url(),
  /** Reported things that belong to another host or to none: the host removes them. */
  not_yours: z.array(z.object({ kind: z.string(), id: z.string() })),
  /** The wanted state of single things in the report, if the platform has one. */
  things: z.array(ThingOnHost),
  /** By host part: the wanted version of its whole state. If it differs, the host fetches that state. */
  wanted: z.record(z.string(), z.string()),
})

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
export type SignOfLife = z.infer<typeof SignOfLife>
export type HostReport = z.infer<typeof HostReport>
export type ReportAnswer = z.infer<typeof ReportAnswer>

/** The claim `req`: the token is good for this request alone. `target` is path and query. */
export const requestHash = (method: string, target: string): string =>
  createHash('sha256').update(`${method} ${target}`).digest('base64url')

/**
 * A party signs its own requests to the internal API (party-tokens.ts): this audience, `req` with the hash of method, path and
 * query, a single-use `jti`, 60 s.
 */
export const internalAudience = 'keelson-internal'
export const internalTokenSec = 60
/** For the gateway in front of Temporal, parties sign tokens that are good for longer: they go with each call. */
export const gatewayAudience = 'keelson-gateway'
export const gatewayTokenSec = 180
/** Keys that seal the payloads of one party, in the format of a key file. */
export const CodecKeys = z.object({ keys: z.string().max(10_000) })

/**
 * The API signs its requests to a host: EdDSA, `typ: plane+jwt`, audience `host:<id>`, sub `<instance>:<verb>`, `req`
 * with the hash of method, path and query, a single-use `jti`, 30 s.
 */
export const planeTokenType = 'plane+jwt'
export const planeAudience = (hostId: string): string => `host:${hostId}`
export type PlaneVerb = 'logs' | 'archive' | 'console' | 'counters'
export const planeSubject = (instanceId: string, verb: PlaneVerb): string => `${instanceId}:${verb}`
/** The subject of a token for the output of a service that runs in a machine of a deploy server. */
export const serviceSubject = (machineId: string, serviceId: string): string =>
  `${machineId}/${serviceId}:logs`
/** The subject of a token for the archive of an artifact that is sent in parts. */
export const uploadSubject = (machineId: string, artifactId: string): string =>
  `${machineId}/${artifactId}:upload`
/** The subject of a token for the registry in a machine of a deploy server. */
export const registrySubject = (machineId: string, deployServerId: string): string =>
  `${machineId}/${deployServerId}:registry`
/** The subject of a token for the store of documents in a container. */
export const storeSubject = (instanceId: string): string => `${instanceId}:store`
/** In answers that come from a store. Without it, the host itself has refused. */
export const storeAnswerHeader = 'keelson-store'
/** The subject of a token that makes a part of the host apply what is wanted. */
export const wantedSubject = (part: string): string => `${part}:wanted`
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
/** A text frame from a console's client. Binary frames carry the terminal's input and output. */
export const ConsoleMessage = z.strictObject({
  type: z.literal('resize'),
  cols: z.int().min(1).max(1000),
  rows: z.int().min(1).max(1000),
})
