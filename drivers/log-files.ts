/** Where an engine writes the output of one container. */
export interface LogSource {
  /** The instance's id. */
  id: string
  /** The engine's id of the container. It changes when the container is recreated. */
  engine_id: string
  /** RFC 3339, from the engine. Output of an earlier container sorts before it. */
  engine_created_at: string
  /** The file being written; full files are beside it. */
  path: string
  /** Number of full files that the container's cap keeps on the host. */
  kept_files: number
  /** With this many full files, the engine drops the oldest when the next is full. */
  most_files: number
}

/** An open file. It stays readable when it is renamed or removed. */
export interface LogFile {
  /** A permanent key: a hash of the first line, which contains its time in nanoseconds. */
  key: string
  /** Bytes to read, up to the end of a line. */
  bytes: number
  /** So many files wait that the engine may have dropped files before this one. */
  after_gap: boolean
  /** At most `bytes` bytes from offset `from`, up to the end of a line. */
  read(from: number, bytes: number): Buffer
  /** Removes this file and no other. It must still be closed. */
  drop(): void
  close(): void
}

/**
 * The files that hold containers' output. The engine can rotate a full file at any moment; as long as there are fewer
 * than `most_files`, only the caller drops files.
 */
export interface LogFiles {
  /** Null if there is no such container. */
  sourceOf(id: string): Promise<LogSource | null>
  /** Whether there is any full file. Costs two file system calls and no engine call. */
  hasFull(engineId: string): boolean
  /** Whether there are files beyond the cap. Same cost as `hasFull`. */
  isOverCap(source: LogSource): boolean
  /** `over_cap`: the files beyond the cap; `all`: every file, including the one being written. Oldest first. */
  open(source: LogSource, which: 'over_cap' | 'all'): LogFile[]
}
