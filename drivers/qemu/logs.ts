import { join } from 'node:path'
import { logLimits, openFiles } from '../system/log-files.ts'
import { hasMore } from '../system/log-names.ts'
import type { Part } from '../system/log-reader.ts'
import { LogFileWriter, type LogLine } from '../system/log-writer.ts'
import type { LogFiles, LogSource } from '../log-files.ts'
import type { AgentLine } from './messages.ts'
import type { MachinePlace } from './places.ts'
import type { MachineRecord } from './records.ts'

// Machines' output in the format and under the file names of the Docker Engine's `json-file` driver, so that the same
// code archives both. Each entry has the machine's line number (`attrs.n`), so that a new worker knows which lines a
// killed one has written.

/** As in the file. */
export type Entry = LogLine & { attrs: { n: string } }

const streams = { 1: 'stdout', 2: 'stderr' } as const

export const logSource = (place: MachinePlace, record: MachineRecord, backlogMib: number): LogSource => {
  const { files, keptFiles } = logLimits(record.spec.log_cap_mib, backlogMib)
  return {
    id: place.id,
    engine_id: record.engine_id,
    engine_created_at: record.created_at,
    path: join(place.logs, `${record.engine_id}-json.log`),
    kept_files: keptFiles,
    most_files: files - 1,
  }
}

/** Appends a machine's lines to its files. There must be only one per machine. */
export class LogWriter {
  readonly source: LogSource
  readonly #file: LogFileWriter<Entry>
  readonly #followers = new Set<(part: Part) => void>()
  #last: number
  #isClosed = false

  constructor(place: MachinePlace, record: MachineRecord, backlogMib: number) {
    this.source = logSource(place, record, backlogMib)
    const { fileBytes } = logLimits(record.spec.log_cap_mib, backlogMib)
    this.#file = new LogFileWriter(this.source.path, { fileBytes, mostFiles: this.source.most_files })
    this.#last = Number(this.#file.lastLine?.attrs.n ?? record.lines_before)
  }

  get last(): number {
    return this.#last
  }

  /** Takes nothing after `close`, or if the disk is full: the lines stay in the machine. */
  append(lines: AgentLine[]): number {
    if (this.#isClosed) return this.#last
    const entries = lines.map(({ seq, stream, text, partial = false }) => ({
      log: Buffer.from(text, 'base64').toString() + (partial ? '' : '\n'),
      stream: streams[stream],
      attrs: { n: String(seq) },
    }))
    this.#write(entries)
    return this.#last
  }

  /** Appends lines without numbers. */
  addAll(lines: Buffer[]): void {
    if (this.#isClosed) return
    const entries = lines.map((line, index) => ({
      log: `${line.toString()}\n`,
      stream: streams[1],
      attrs: { n: String(this.#last + 1 + index) },
    }))
    this.#write(entries)
  }

  /** In one go: each write costs as much as a hundred lines. */
  #write(entries: Omit<Entry, 'time'>[]): void {
    for (const entry of this.#file.addAll(entries)) {
      this.#last = Number(entry.attrs.n)
      for (const follower of this.#followers) follower(entry)
    }
  }

  onEntry(follower: (part: Part) => void): () => void {
    this.#followers.add(follower)
    return () => this.#followers.delete(follower)
  }

  close(): void {
    this.#isClosed = true
    this.#file.close()
  }
}

/** Machines' log files, for archiving. `look` returns the log source of a machine. */
export function makeMachineLogFiles(
  look: (id: string) => Promise<LogSource | null>,
  pathOf: (engineId: string) => string | null,
): LogFiles {
  return {
    sourceOf: look,
    hasFull(engineId) {
      const path = pathOf(engineId)
      return path !== null && hasMore(path, 0)
    },
    isOverCap: ({ path, kept_files }) => hasMore(path, kept_files),
    open: openFiles,
  }
}
