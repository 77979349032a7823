/** Where an engine writes down what one container says. */
export interface LogSource {
  /** The instance's id. */
  id: string
  /** The engine's own name for it: another one, once it was made anew. */
  engine_id: string
  /** RFC 3339, as the engine has it: what an earlier one said comes before. */
  engine_created_at: string
  /** The file that is written to; full ones are beside it. */
  path: string
  /** Full files that the container's cap leaves on the host. */
  kept_files: number
  /** With so many full files the engine drops the oldest when the next is full. */
  most_files: number
}

/** An open file: it stays readable, whatever becomes of its name. */
export interface LogFile {
  /** Names it for good: a hash of its first line, which has its time in nanoseconds. */
  key: string
  /** What there is to read, up to the end of a line. */
  bytes: number
  /** So many files wait that the engine may have dropped others before this one. */
  after_gap: boolean
  /** At most `bytes` from there, up to the end of a line. */
  read(from: number, bytes: number): Buffer
  /** Removes this file, and never another. It is to be closed all the same. */
  drop(): void
  close(): void
}

/**
 * The files in which an engine keeps containers' output. It moves them on, at any moment, whenever one is full; only the
 * caller drops any, as long as there are fewer than `most_files`.
 */
export interface LogFiles {
  /** Null where there is no such container. */
  sourceOf(id: string): Promise<LogSource | null>
  /** Whether there is a full one at all. Costs two calls to the file system, and none to the engine. */
  hasFull(engineId: string): boolean
  /** Whether some are beyond the cap. The same. */
  isOverCap(source: LogSource): boolean
  /** Those that are beyond the cap, or all with the one that is written to, the oldest first. */
  open(source: LogSource, which: 'over_cap' | 'all'): LogFile[]
}
