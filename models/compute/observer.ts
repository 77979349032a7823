import type { z } from 'zod'
import type { ThingOnHost } from '../../lib/host-protocol.ts'

/** Handles what hosts report about some kinds of things, and gives the version that a part of a host is to have. */
export interface Observer {
  kinds?: readonly string[]
  /** The report of one thing. */
  schema?: z.ZodType
  /** Handles all things of these kinds on a host. The host began to collect them `ageMs` ago. */
  observe?(hostId: string, seen: never[], ageMs: number): Promise<Observed>
  /** The version of the wanted state. A host with another version asks for the state. */
  wanted?(hostId: string): Promise<string>
}

export interface Observed {
  /** Ids of things that the host must remove: they moved away or were deleted while the host was unreachable. */
  not_yours: string[]
  /** The wanted state of each thing. */
  things?: ThingOnHost[]
}

/** Gives `observe` the type of its schema. */
export const observer = <T>(of: {
  kinds: readonly string[]
  schema: z.ZodType<T>
  observe(hostId: string, seen: T[], ageMs: number): Promise<Observed>
}): Observer => of
