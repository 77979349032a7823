import { z } from 'zod'

// Messages between a host and the API about deploy servers. The shapes are those of drivers/swarms.ts.

/** Has the id of the application, on its services, containers and volumes. */
export const applicationLabel = 'keelson.application'

const Service = z.object({
  id: z.string(),
  name: z.string(),
  labels: z.record(z.string(), z.string()),
  machine_id: z.string(),
  image: z.string(),
  command: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  cpu_cores: z.number(),
  memory_mib: z.int(),
  port: z.object({ container_port: z.int(), machine_port: z.int() }).nullable(),
  volumes: z.array(z.object({ name: z.string(), mount_path: z.string() })),
  health_check: z.null(),
  stop_grace_sec: z.int(),
  restarts: z.int(),
})

/** What a worker needs to join a Swarm: a secret. */
export const Joining = z.strictObject({
  token: z.string().min(1).max(500),
  manager_node_id: z.string().min(1).max(100),
})
export type Joining = z.infer<typeof Joining>

/** All services of a Swarm, with their secrets. The host removes all others. */
export const DeployServices = z.object({ services: z.array(Service) })
export type DeployServices = z.infer<typeof DeployServices>

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
