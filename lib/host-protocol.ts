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
  /** Where clients reach the ports that containers publish. */
  address: z.string().max(255),
  capacity: Capacity,
})

/** The API's public keys: tokens that it sends to the data plane are signed with one of them. */
export const JsonWebKeys = z.object({ keys: z.array(z.record(z.string(), z.unknown())) })
export const Enrolled = z.object({ host_id: z.string(), jwks: JsonWebKeys })

/** What the engine says of an instance that carries this platform's labels. */
export const ObservedInstance = z.strictObject({
  id: z.string(),
  kind: z.enum(['container']),
  state: z.enum(['created', 'running', 'exited']),
  exit_code: z.int().nullable(),
  oom_killed: z.boolean(),
  restart_count: z.int(),
  started_at: z.iso.datetime().nullable(),
  health: z.enum(['none', 'starting', 'healthy', 'unhealthy']),
})

/** Complete: an instance that is not in the list is not on the host. */
export const HostReport = z.strictObject({
  data_plane_url: z.url(),
  address: z.string().max(255),
  capacity: Capacity,
  engine: z.strictObject({ name: z.string(), version: z.string() }),
  instances: z.array(ObservedInstance),
})

export const ReportAnswer = z.object({ jwks: JsonWebKeys })

export type PublicKey = z.infer<typeof PublicKey>
export type Capacity = z.infer<typeof Capacity>
export type Enrolment = z.infer<typeof Enrolment>
export type Enrolled = z.infer<typeof Enrolled>
export type ObservedInstance = z.infer<typeof ObservedInstance>
export type HostReport = z.infer<typeof HostReport>
export type ReportAnswer = z.infer<typeof ReportAnswer>

/** A host signs its requests itself: EdDSA, `typ: host+jwt`, sub = iss = host id, this audience, 60 s. */
export const internalAudience = 'keelson-internal'
export const hostTokenType = 'host+jwt'

/** The API signs what it asks of a host: EdDSA, `typ: plane+jwt`, audience `host:<id>`, sub `<instance>:<verb>`, a `jti` used once, 30 s. */
export const planeTokenType = 'plane+jwt'
export const planeAudience = (hostId: string): string => `host:${hostId}`
export const planeSubject = (instanceId: string, verb: 'logs'): string => `${instanceId}:${verb}`
export const planeTokenSec = 30

/** One line of `GET /containers/{id}/logs`. */
export const LogLine = z.object({
  time: z.iso.datetime({ precision: null }).describe('When the engine read the line, UTC'),
  stream: z.enum(['stdout', 'stderr']),
  line: z.string(),
})
export type LogLine = z.infer<typeof LogLine>
