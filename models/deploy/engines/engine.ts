import { z } from 'zod'
import type { DatabaseMetric } from '../../../lib/deploy-protocol.ts'

// What a database engine is to the platform. Each engine is one file beside this one, and one line in index.ts.

/** Generated for each database. They consist of letters and digits, so that URLs need no escapes. */
export interface DatabaseCredentials {
  user: string
  password: string
  database: string
  root_password: string
}

/** Values of the keys that an engine takes (`configuration`). */
export type Configuration = Record<string, string | number | boolean>

/**
 * How an engine's data is copied out of it, into another one, and compared. Each is a script for /bin/sh in the engine's
 * container, which takes all that it needs from the engine's environment (`env`) and uses the tools of the public image.
 */
export interface EngineCopies {
  /**
   * Writes a copy of all of the tenant's data to its standard output, and to standard error a line `count LEAST MOST NAME`
   * for each table, collection or key space: how many rows, documents or keys an engine has that has read the copy. Fails
   * unless the copy is whole. Other lines on standard error say why. Clients go on reading and writing meanwhile.
   */
  dump: string
  /**
   * Reads a copy from standard input into a running engine whose volume is new, with the same names and the same or
   * a newer version, also of the next major line. Fails at the first error, and if the copy is cut off. The generated user
   * has the engine's password afterwards: `$KEELSON_COPY_PASSWORD` is the one in a copy, if that has users.
   */
  restore: string
  /** Writes a line `count N NAME` to standard output for each table, collection or key space that is there now. */
  count: string
  /** Its copies are compressed already. */
  compressed?: true
}

/**
 * How an engine is recovered to any moment: by a copy of its files, which is a base, and the segments of its log since. Each
 * script is for /bin/sh in the engine's container. `$KEELSON_ARCHIVE`: the id of the archive.
 */
export interface EngineArchive {
  /** With which every engine runs: it archives nothing until an archive is opened in its volume, and never fills that. */
  options: string[]
  /**
   * Writes a base as `dump` of EngineCopies does, and to standard error also a line `base SEGMENT MOMENT ARCHIVE`: the
   * first segment that it needs, when it ended, and the archive of the volume. In a line `count LEAST - NAME` the most is not known.
   */
  dump: string
  /** Instead of the command of an engine that waits for its files. `target`: the moment to which it then goes on. */
  command: (command: string[], target: string | null) => string[]
  /** Reads a base from standard input. Fails if it is cut off. */
  fill: string
  /** Reads a tar of segments. */
  fillSegments: string
  /** Has the engine start. */
  begin: string
  /** Gives the generated user the engine's password instead of the one in the files. Fails until the engine answers. */
  adopt: string
  /** Begins an archive in the volume of a running engine. */
  open: string
  /**
   * Has the engine finish a segment if anything was written, and prints a line `segment NAME TIME` for each that waits, the
   * oldest first. TIME: all that was committed until then is in it and in those before; `-`: not known. Or it prints
   * `idle TIME`, since when nothing waits; `lost`: the volume has no such archive; `gap NAME`: a segment was let go.
   */
  look: string
  /** Writes the segment `$KEELSON_SEGMENT` to standard output. */
  read: string
  /** Removes the segments `$KEELSON_SEGMENTS`. */
  forget: string
  /** Ends what archive there is. */
  close: string
}

/**
 * The users of attached instances: each may read and write the data and make tables, and nothing else. Commands are run by
 * /bin/sh in the container. Secrets go to the engine by its client's input, and in no list of arguments.
 */
export interface DatabaseUsers {
  /** Prints the names of all users, each in a line of its own. */
  list: string
  /** Makes $ATTACHED_USER with $ATTACHED_PASSWORD, or gives it that password and its rights again. */
  make: string
  /** Removes $ATTACHED_USER and ends its connections. What it has made stays. Succeeds if there is none. */
  remove: string
  /** If it differs from the engine's. */
  url?: (credentials: DatabaseCredentials, address: string) => string
}

/** What the engine tells of itself cheaply, by the same names for all engines. */
export interface EngineMetrics {
  /**
   * Run by /bin/sh in the container, with the engine's environment: prints a line `metric VALUE NAME` for each, VALUE being
   * a whole number. Counters may begin at 0 again when the engine starts. No secret is in a list of arguments.
   */
  script: string
  /** How often it is run: seldom if the engine's client is a large program. */
  every_sec: 60 | 300
  /** Why the engine does not tell the others. */
  without: Partial<Record<DatabaseMetric, string>>
}

/** How clients outside of the deploy server reach an engine by TLS. */
export interface PublicAccess {
  /**
   * Who ends TLS: the load balancer; or the engine itself, where its protocol begins without TLS. Then `user` of the image
   * runs it, and it takes these options. The file has the private key and the certificate.
   */
  tls: 'load_balancer' | { user: string; options: (file: string) => string[] }
  url: (credentials: DatabaseCredentials, address: string) => string
}

export interface DatabaseEngine {
  /** Its name in sentences. */
  title: string
  /** The public image without its tag. The operator's setting replaces it (config.ts). */
  image: string
  /** The tag of a version's image. Default: the version. */
  tagOf?: (version: string) => string
  /** Those that are offered, the newest first. */
  versions: readonly string[]
  /** How many numbers of a version name its line: within a line a newer version takes the data as they are. */
  line: 1 | 2
  /** In the container. */
  port: number
  /** Where the image keeps its data. */
  data_path: string
  memory_mib: { least: number; usual: number }
  /** Enough for a clean shutdown under load. At most 120: a worker that leaves waits so long. */
  stop_grace_sec: number
  /** Run by /bin/sh in the container: succeeds once the engine answers a client with its credentials. */
  healthy: string
  env: (credentials: DatabaseCredentials) => Record<string, string>
  /** Instead of the image's own command; empty: the image's own. */
  command: (of: {
    memory_mib: number
    configuration: Configuration
    credentials: DatabaseCredentials
  }) => string[]
  /** The keys that a tenant may set, each with what it takes. */
  configuration: z.ZodObject
  /** The settings that a copy of a database with such a configuration needs while an engine takes it. Default: none. */
  filling?: (configuration: Configuration) => Configuration
  /** The URL by which clients connect. `address`: `host:port`. */
  url: (credentials: DatabaseCredentials, address: string) => string
  outside: PublicAccess
  copies: EngineCopies
  /** If it can be recovered to any moment. */
  archive?: EngineArchive
  users: DatabaseUsers
  metrics: EngineMetrics
}

// What configuration keys take.
export const between = (least: number, most: number) => z.int().min(least).max(most)
/** A size as engines write it, such as `64MB`; `units`: those that the engine takes. */
export const size = (units: string) =>
  z.string().regex(new RegExp(`^[1-9]\\d{0,6}(${units})$`), `must be a size with one of the units ${units}`)
/** The keys of an engine, none of which needs to be given. */
export const keys = (shape: z.ZodRawShape): z.ZodObject => z.strictObject(shape).partial()

/** `--key=value`, with the platform's choices first. */
export const options = (settings: Configuration, form = (key: string) => `--${key}`): string[] =>
  Object.entries(settings).map(([key, value]) => `${form(key)}=${String(value)}`)
