import type { Keys } from './keys.ts'
import type { Path } from './text.ts'

// What the parts of a container are read from.

/** What a container has around it. */
export interface Surroundings {
  volumes: ReadonlySet<string>
  networks: ReadonlySet<string>
  /** Contents by name. */
  configs: ReadonlyMap<string, string>
  /** The paths of the service's storages, by container. */
  storages: ReadonlyMap<string, readonly string[]>
}

/** One container: its keys, and where a fault of it goes. */
export interface Reading {
  name: string
  keys: Keys
  around: Surroundings
  fault: (key: string | Path, message: string) => void
}
