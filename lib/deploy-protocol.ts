import { z } from 'zod'
import { InstanceSample, samplesPerMessage } from './host-protocol.ts'

// Messages between a host and the API about deploy servers. The shapes are those of drivers/swarms.ts.

/**
 * What the containers and volumes of a deploy server belong to, with the label that has its id. (`keelson.service` is
 * taken: it has the id of each Swarm service.)
 */
const ownerLabels = {
  application: 'keelson.application',
  database: 'keelson.database',
  service: 'keelson.composed',
} as const
export type VolumeOwnerKind = keyof typeof ownerLabels
export const ownerLabel = (kind: VolumeOwnerKind): string => ownerLabels[kind]

/** How a user signs in to the registry of a deploy server. */
export const RegistryLogin = z.object({ name: z.string(), password: z.string() })
export type RegistryLogin = z.infer<typeof RegistryLogin>

const HealthCheck = z.object({
  command: z.array(z.string()),
  interval_sec: z.number(),
  timeout_sec: z.number(),
  retries: z.int(),
  start_period_sec: z.number(),
})

/** What only the containers of services have. */
const Composed = z.object({
  entrypoint: z.array(z.string()).nullable(),
  user: z.string().nullable(),
  working_dir: z.string().nullable(),
  hostname: z.string().nullable(),
  networks: z.array(z.object({ name: z.string(), aliases: z.array(z.string()), internal: z.boolean() })),
  ports: z.array(z.object({ container_port: z.int(), machine_port: z.int() })),
  read_only_paths: z.array(z.string()),
  tmpfs: z.array(z.object({ mount_path: z.string(), size_mib: z.int().nullable() })),
  files: z.array(z.object({ mount_path: z.string(), content: z.string(), mode: z.int() })),
  health_check: z.union([HealthCheck, z.literal('none')]).nullable(),
  restart: z.enum(['always', 'on-failure', 'no']),
  stop_signal: z.string().nullable(),
  read_only: z.boolean(),
  tty: z.boolean(),
  capabilities: z.object({ add: z.array(z.string()), drop: z.array(z.string()) }),
})

const Service = z.object({
  id: z.string(),
  name: z.string(),
  labels: z.record(z.string(), z.string()),
  machine_id: z.string(),
  image: z.string(),
  registry_login: RegistryLogin.nullable(),
  command: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  cpu_cores: z.number(),
  memory_mib: z.int(),
  port: z.object({ container_port: z.int(), machine_port: z.int() }).nullable(),
  volumes: z.array(z.object({ name: z.string(), mount_path: z.string() })),
  health_check: z.null(),
  stop_grace_sec: z.int(),
  restarts: z.int(),
  composed: Composed.optional(),
})

/** What a worker needs to join a Swarm: a secret. */
export const Joining = z.strictObject({
  token: z.string().min(1).max(500),
  manager_node_id: z.string().min(1).max(100),
})
export type Joining = z.infer<typeof Joining>

/** A part of a manager's log has 8 MiB at most. With it come its snapshots, of a few MiB at most. */
export const swarmPieceAtMostKib = 32 * 1024

/** `whole`: up to this piece the copy can be used. */
export const SwarmPiecePlace = z.strictObject({
  machine_id: z.string().max(100),
  index: z.coerce.number().int().min(0),
  whole: z.stringbool({ truthy: ['true'], falsy: ['false'] }),
})
export type SwarmPiecePlace = z.infer<typeof SwarmPiecePlace>

export const ControlPlanesOnHost = z.object({
  control_planes: z.array(z.object({ deploy_server_id: z.string(), machine_id: z.string() })),
})
export type ControlPlanesOnHost = z.infer<typeof ControlPlanesOnHost>

/** All services of a Swarm, with their secrets. The host removes all others. */
export const DeployServices = z.object({ services: z.array(Service) })
export type DeployServices = z.infer<typeof DeployServices>

/** What engines of databases report as it is now. */
export const databaseGauges = ['connections', 'connections_max', 'data_bytes', 'keys'] as const
/** What they count; an engine may begin at 0 again at any time. */
export const databaseCounters = ['queries', 'slow_queries', 'cache_hits', 'cache_misses'] as const
export const databaseMetrics = [...databaseGauges, ...databaseCounters]
export type DatabaseMetric = (typeof databaseMetrics)[number]

/** What the engine of a database reported at a moment. Not every engine reports all. */
const DatabaseSample = z.strictObject({
  id: z.string(),
  machine_id: z.string(),
  time: z.iso.datetime(),
  values: z.partialRecord(z.enum(databaseMetrics), z.number().nonnegative()),
})
export type DatabaseSample = z.infer<typeof DatabaseSample>

/**
 * What the replicas on a host's machines have used: `id` is that of their service. And how replicas ended, told once by each
 * start of the host's worker.
 */
export const ReplicaReport = z.strictObject({
  samples: z.array(InstanceSample.extend({ machine_id: z.string() })).max(samplesPerMessage),
  ended: z
    .array(
      z.strictObject({
        machine_id: z.string(),
        service_id: z.string(),
        engine_id: z.string().max(64),
        exit_code: z.int(),
        ended_at: z.iso.datetime(),
      }),
    )
    .max(samplesPerMessage),
  /** The health of the containers that run. */
  healths: z
    .array(
      z.strictObject({
        machine_id: z.string(),
        service_id: z.string(),
        health: z.enum(['none', 'starting', 'healthy', 'unhealthy']),
      }),
    )
    .max(samplesPerMessage)
    .default([]),
  databases: z.array(DatabaseSample).max(samplesPerMessage).default([]),
})
export type ReplicaReport = z.infer<typeof ReplicaReport>

/** A container of a service, and what is waited for. */
export interface AwaitedContainer {
  name: string
  service_id: string
  until: 'begun' | 'running' | 'completed'
}

/** A replica that is to serve. */
export interface ServingPlace {
  service_id: string
  ip_address: string
  /** Null: it serves nothing; it must only run. */
  machine_port: number | null
}

/** Where a replica runs, with the host of its worker's machine. */
export interface PlaceOnHost {
  host_id: string
  machine_id: string
  service_id: string
  /** The name of its worker. */
  node: string
}

/** The files of an artifact on its worker. */
export interface Unpacked {
  path: string
  files: number
  bytes: number
}

/** A registry of a deploy server, on one of its machines. It is reached only from the deploy server's machines. */
export const RegistryOnHost = z.object({
  image: z.string(),
  ip_address: z.string(),
  port: z.int(),
  /** All who may pull and push. The first one is the platform. */
  users: z.array(RegistryLogin).min(1),
})
export type RegistryOnHost = z.infer<typeof RegistryOnHost>

/** A build, with its secrets, for the host of the worker that builds. */
export const BuildOnHost = z.object({
  image: z.string(),
  /** The files of the artifact on the worker. */
  folder: z.string(),
  /** Null: generate one, unless there is a `Dockerfile`. */
  dockerfile: z.string().nullable(),
  target: z.string().nullable(),
  build_args: z.record(z.string(), z.string()),
  secrets: z.record(z.string(), z.string()),
  timeout_sec: z.int(),
  /** For generated Dockerfiles, by what each runs. */
  base_images: z.record(z.string(), z.string()),
  /** Makes the Dockerfiles instead. */
  nixpacks: z.object({ image: z.string(), base_image: z.string().nullable() }).nullable(),
  registry: RegistryOnHost,
})
export type BuildOnHost = z.infer<typeof BuildOnHost>

/** Lines of a build's log. A part that is sent again changes nothing. */
export const BuildLogPart = z.object({
  /** A build that is done again, because its host was killed, has a further attempt. Ids grow with time. */
  attempt: z.uuid(),
  /** Counts the parts of the attempt. */
  part: z.int().nonnegative(),
  /** How many lines the attempt has with this part. */
  total: z.int().nonnegative(),
  lines: z.array(z.object({ time: z.iso.datetime(), line: z.string().max(2000) })).max(200),
})
export type BuildLogPart = z.infer<typeof BuildLogPart>

/** An image that a build has made and pushed. */
export interface BuiltImage {
  digest: string
  size_bytes: number
  /** What the generated Dockerfile is for. Null: the artifact has its own. */
  generated: string | null
}

const BuildsImage = z.object({ image: z.string(), build_id: z.string() })

/** Images that the registry of a deploy server no longer needs, and what the engine may keep of builds. */
export const ImagesToRemove = z.object({
  registry: RegistryOnHost,
  images: z.array(BuildsImage),
  /** Images that other builds have made, too, and need; those of open builds have no digest yet. */
  kept: z.object({
    digests: z.array(z.string()),
    images: z.array(BuildsImage),
    /** The builds whose images are kept. */
    ids: z.array(z.string()),
  }),
  cache_bytes: z.int(),
})
export type ImagesToRemove = z.infer<typeof ImagesToRemove>

/** Images that one registry of a deploy server is to get from the other one. */
export const ImagesToCopy = z.object({
  from: RegistryOnHost,
  to: RegistryOnHost,
  images: z.array(BuildsImage.extend({ digest: z.string() })),
  /** The names of all images: they may share layers. */
  names: z.array(z.string()),
})
export type ImagesToCopy = z.infer<typeof ImagesToCopy>

/** The users that databases on a host's machines are to have, with passwords. The host removes others that the platform made. */
export const DatabaseUsersOnHost = z.object({
  version: z.string(),
  databases: z.array(
    z.object({
      id: z.string(),
      machine_id: z.string(),
      /** Counts its starts: an engine may have forgotten its users. */
      starts: z.int(),
      users: z.array(z.object({ name: z.string(), password: z.string() })),
      /** Run by /bin/sh in its container. */
      commands: z.object({ list: z.string(), make: z.string(), remove: z.string() }),
    }),
  ),
})
export type DatabaseUsersOnHost = z.infer<typeof DatabaseUsersOnHost>

/** The databases on a host's machines whose engines are to be asked for metrics. */
export const DatabaseMetricsOnHost = z.object({
  version: z.string(),
  databases: z.array(
    z.object({
      id: z.string(),
      machine_id: z.string(),
      every_sec: z.int().positive(),
      /** Run by /bin/sh in its container. Prints lines `metric VALUE NAME`. */
      script: z.string(),
    }),
  ),
})
export type DatabaseMetricsOnHost = z.infer<typeof DatabaseMetricsOnHost>

/** The names of users of attachments, and of no others. */
export const attachedUser = /^k_[0-9a-f]{24}$/
