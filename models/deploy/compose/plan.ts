// What a compose file says, in our own words: everything that a service's containers are made from.

export const conditions = ['service_started', 'service_healthy', 'service_completed_successfully'] as const
export type Condition = (typeof conditions)[number]

export interface HealthCheck {
  command: string[]
  interval_sec: number
  timeout_sec: number
  retries: number
  start_period_sec: number
}

/** One container: what compose calls a service. */
export interface PlannedContainer {
  /** Its name in the file, by which the others reach it. */
  name: string
  /** Further names by which the others reach it. */
  aliases: string[]
  hostname: string | null
  image: string
  /** The build of the deploy server that the image is of: not in the file. Not there: the image is from another registry. */
  built?: { build_id: string; digest: string }
  /** Null: the image's own. */
  entrypoint: string[] | null
  /** Null: the image's own. */
  command: string[] | null
  env: Record<string, string>
  user: string | null
  working_dir: string | null
  /** The ports that clients reach by a URL each. */
  ports: number[]
  /** The networks of the file that it is in. */
  networks: { name: string; aliases: string[] }[]
  volumes: { volume: string; mount_path: string; read_only: boolean }[]
  /** In memory. `size_mib`: null: as large as the container's memory. */
  tmpfs: { mount_path: string; size_mib: number | null }[]
  files: { mount_path: string; content: string; mode: number }[]
  depends_on: { name: string; condition: Condition }[]
  /** Null: the image's own, if it has one. */
  health_check: HealthCheck | 'none' | null
  /** Whether it starts again when it ends. `no`: it may end for good, as a job does. */
  restart: 'always' | 'on-failure' | 'no'
  cpu_cores: number
  memory_mib: number
  stop_grace_sec: number
  stop_signal: string | null
  read_only: boolean
  tty: boolean
  capabilities: { add: string[]; drop: string[] }
}

export interface ComposePlan {
  containers: PlannedContainer[]
  /** `internal`: without a way out. */
  networks: { name: string; internal: boolean }[]
  volumes: string[]
}

/** The containers in the order of their start: those of a row depend only on rows before. Null: they depend in a circle. */
export function rowsOf(containers: Pick<PlannedContainer, 'name' | 'depends_on'>[]): string[][] | null {
  const rows: string[][] = []
  const placed = new Set<string>()
  let left = containers
  while (left.length) {
    const ready = left.filter(({ depends_on }) => depends_on.every(({ name }) => placed.has(name)))
    if (ready.length === 0) return null
    rows.push(ready.map(({ name }) => name))
    for (const { name } of ready) placed.add(name)
    left = left.filter((one) => !placed.has(one.name))
  }
  return rows
}
