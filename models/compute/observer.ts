import type { z } from 'zod'
import type { ThingOnHost } from '../../lib/host-protocol.ts'

/** How the platform takes in what hosts report of some kinds of things, and what it wants of a part of a host. */
export interface Observer {
  kinds?: readonly string[]
  /** What reports say of one thing. */
  schema?: z.ZodType
  /** Takes in all things of these kinds on a host; `ageMs`: so long ago the host began to look. */
  observe?(hostId: string, seen: never[], ageMs: number): Promise<Observed>
  /** The version of the whole that is wanted on a host, which the host asks for when it has another one. */
  wanted?(hostId: string): Promise<string>
}

export interface Observed {
  /** Ids of things that the host must remove: they moved away, or were deleted, while it could not be reached. */
  not_yours: string[]
  /** What is wanted of them one by one. */
  things?: ThingOnHost[]
}

/** Gives `observe` the type of its schema. */
export const observer = <T>(of: {
  kinds: readonly string[]
  schema: z.ZodType<T>
  observe(hostId: string, seen: T[], ageMs: number): Promise<Observed>
}): Observer => of
