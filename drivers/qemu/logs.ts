import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import type { LogEntry } from '../containers.ts'
import { logLimits, openFiles } from '../system/log-files.ts'
import { hasMore } from '../system/log-names.ts'
import { exactTime } from '../system/times.ts'
import type { LogFiles, LogSource } from '../log-files.ts'
import type { AgentLine } from './messages.ts'
import type { MachinePlace } from './places.ts'
import type { MachineRecord } from './records.ts'

// Machines' output in the format and under the file names of the Docker Engine's `json-file` driver, so that the same
// code archives both. Each entry has the machine's line number (`attrs.n`), so that a new worker knows which lines a
// killed one has written.

/** As in the file. The order of fields matters: readers look for the time at an entry's end. */
export interface Entry {
  log: string
  stream: LogEntry['stream']
  attrs: { n: string }
  time: string
}

/** The fields that a reader needs. */
export type Part = Pick<Entry, 'log' | 'stream' | 'time'>

const streams = { 1: 'stdout', 2: 'stderr' } as const
const longestEntry = 128 * 1024

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
  readonly #fileBytes: number
  readonly #followers = new Set<(part: Part) => void>()
  #descriptor: number
  #bytes: number
  #last = 0
  #lastNs = 0n
  #isClosed = false

  constructor(place: MachinePlace, record: MachineRecord, backlogMib: number) {
    this.source = logSource(place, record, backlogMib)
    this.#fileBytes = logLimits(record.spec.log_cap_mib, backlogMib).fileBytes
    mkdirSync(place.logs, { recursive: true })
    this.#descriptor = openSync(this.source.path, 'a+', 0o600)
    this.#bytes = wholeLines(this.#descriptor)
    ftruncateSync(this.#descriptor, this.#bytes) // a worker was killed while writing a line
    this.#last = record.lines_before
    const entry = lastEntry(this.#descriptor) ?? lastOf(`${this.source.path}.1`)
    if (!entry) return
    this.#last = Number(entry.attrs.n)
    this.#lastNs = nanos(entry.time)
  }

  get last(): number {
    return this.#last
  }

  /** Takes nothing after `close`: the lines stay in the machine. */
  append(lines: AgentLine[]): number {
    if (this.#isClosed) return this.#last
    for (const { seq, stream, text, partial = false } of lines) {
      const log = Buffer.from(text, 'base64').toString() + (partial ? '' : '\n')
      const entry: Entry = { log, stream: streams[stream], attrs: { n: String(seq) }, time: this.#now() }
      const written = Buffer.from(`${JSON.stringify(entry)}\n`)
      if (this.#bytes > 0 && this.#bytes + written.length > this.#fileBytes) this.#rotate()
      if (!this.#write(written)) return this.#last
      this.#bytes += written.length
      this.#last = seq
      for (const follower of this.#followers) follower(entry)
    }
    return this.#last
  }

  /** False if the disk is full. Then nothing is written and the lines stay in the machine. */
  #write(entry: Buffer): boolean {
    try {
      if (writeSync(this.#descriptor, entry) === entry.length) return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
    }
    ftruncateSync(this.#descriptor, this.#bytes)
    return false
  }

  /** Appends output without a line number. */
  add(text: Buffer): void {
    this.append([{ seq: this.#last + 1, stream: 1, text: text.toString('base64') }])
  }

  onEntry(follower: (part: Part) => void): () => void {
    this.#followers.add(follower)
    return () => this.#followers.delete(follower)
  }

  close(): void {
    this.#isClosed = true
    closeSync(this.#descriptor)
  }

  /** Rotates like the Docker Engine, see system/log-names.ts. */
  #rotate(): void {
    const { path, most_files } = this.source
    closeSync(this.#descriptor)
    for (let number = most_files - 1; number >= 1; number--)
      if (existsSync(`${path}.${number}`)) renameSync(`${path}.${number}`, `${path}.${number + 1}`)
    if (most_files > 0) renameSync(path, `${path}.1`)
    this.#descriptor = openSync(path, most_files > 0 ? 'a+' : 'w+', 0o600)
    this.#bytes = 0
  }

  /** Strictly increasing: entries sort by time, and times name the files. */
  #now(): string {
    const now = BigInt(Date.now()) * 1_000_000n
    this.#lastNs = now > this.#lastNs ? now : this.#lastNs + 1n
    const decimals = String(this.#lastNs % 1_000_000_000n).padStart(9, '0')
    const seconds = new Date(Number(this.#lastNs / 1_000_000n)).toISOString().slice(0, 19)
    return `${seconds}.${decimals}Z`
  }
}

function nanos(time: string): bigint {
  const exact = exactTime(time)
  return BigInt(Date.parse(`${exact.slice(0, 19)}Z`)) * 1_000_000n + BigInt(exact.slice(20, 29))
}

/** The offset after the last complete line. */
function wholeLines(descriptor: number): number {
  const size = fstatSync(descriptor).size
  const end = readEnd(descriptor, size)
  return size - (end.length - (end.lastIndexOf(0x0a) + 1))
}

function readEnd(descriptor: number, size: number): Buffer {
  const buffer = Buffer.alloc(Math.min(size, 2 * longestEntry))
  readSync(descriptor, buffer, 0, buffer.length, size - buffer.length)
  return buffer
}

function lastEntry(descriptor: number): Entry | null {
  const text = readEnd(descriptor, fstatSync(descriptor).size).toString().trimEnd()
  const line = text.slice(text.lastIndexOf('\n') + 1)
  return line === '' ? null : (JSON.parse(line) as Entry)
}

function lastOf(path: string): Entry | null {
  if (!existsSync(path)) return null
  const descriptor = openSync(path, 'r')
  try {
    return lastEntry(descriptor)
  } finally {
    closeSync(descriptor)
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
