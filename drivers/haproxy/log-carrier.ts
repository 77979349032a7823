import {
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import type { LogSource } from '../log-files.ts'
import { openFiles } from '../system/log-files.ts'
import { entriesOf } from '../system/log-reader.ts'
import { LogFileWriter } from '../system/log-writer.ts'
import { run } from '../system/programs.ts'
import { type Measured, measured } from './access-log.ts'
import type { Place } from './places.ts'
import { type Tallied, Tallies } from './tallies.ts'

// Carries the access log of one load balancer from HAProxy's file to the files that are archived, and sums it up. Each
// entry says up to where it has read, so a carrier that takes over from a killed one loses and repeats no line. What was
// read is cut out of HAProxy's file, which keeps its apparent length.

export type LogSettings = LogSource & { file_bytes: number }

type Carried = Pick<Place, 'log' | 'logSettings' | 'tallies'>

interface Entry {
  log: string
  stream: 'stdout'
  /** HAProxy's file, and where the line ends in it. */
  attrs: { n: string }
  time: string
}

/** The first line of HAProxy's file: it tells files of the same name apart. */
export const headLine = (id: string): string => `log ${id}\n`

const newline = 0x0a
// For the reads of all carriers: what was read is taken before the next read. More than HAProxy's longest line, and so little
// that HAProxy gets the processor between two reads: with 1 MiB, 1 % of its requests waited 3 ms instead of 1 to 2.
const incoming = Buffer.alloc(64 * 1024)
/** To look for each line alone would cost more than the line, and take the processor from HAProxy. */
const lookEveryMs = 100

export class LogCarrier {
  readonly #place: Carried
  readonly #inode: bigint
  readonly #settings: string
  readonly #descriptor: number
  readonly #file: string
  readonly #writer: LogFileWriter<Entry>
  readonly #tallies: Tallies
  readonly #startedAt: string
  readonly #cut: Cut
  /** The next byte of HAProxy's file. */
  #position: number
  #upTo: string
  #hasNews = true
  #hadLines = true
  #next: NodeJS.Timeout

  /** Throws if the load balancer has no log at this moment. */
  constructor(place: Carried) {
    this.#place = place
    this.#settings = readFileSync(place.logSettings, 'utf8')
    const settings = JSON.parse(this.#settings) as LogSettings
    const { path, file_bytes, most_files } = settings
    this.#descriptor = openSync(place.log, 'r')
    try {
      this.#inode = fstatSync(this.#descriptor, { bigint: true }).ino
      const head = headOf(this.#descriptor)
      this.#file = head.file
      this.#writer = new LogFileWriter(path, { fileBytes: file_bytes, mostFiles: most_files })
      this.#cut = new Cut(place.log)
      const before = readTallied(place.tallies)
      const [file, end] = this.#writer.lastLine?.attrs?.n.split(' ') ?? []
      const carried = Math.max(head.end, file === head.file ? Number(end) : 0, before?.position ?? 0)
      // After a power failure the file may be shorter than what was read of it.
      this.#position = Math.min(carried, fstatSync(this.#descriptor).size)
      this.#tallies = new Tallies(before?.tallies ?? [])
      this.#startedAt = before?.started_at ?? new Date().toISOString()
      this.#upTo = before?.up_to ?? this.#writer.lastLine?.time ?? ''
      this.#addWritten(settings)
    } catch (error) {
      closeSync(this.#descriptor)
      throw error
    }
    this.#next = setTimeout(() => this.#look(), 0)
  }

  /** Adds what an earlier reader has written and not summed up: it was killed. */
  #addWritten(source: LogSource): void {
    if ((this.#writer.lastLine?.time ?? '') <= this.#upTo) return
    for (const file of openFiles(source, 'all')) {
      for (const { log, time } of entriesOf(file)) {
        if (time <= this.#upTo) continue
        const sums = measured(log.trimEnd())
        if (sums) this.#tallies.add(sums, Date.parse(time))
        this.#upTo = time
      }
      file.close()
    }
  }

  #look(): void {
    const { hasLines, isFull } = this.#read()
    if (!hasLines && this.#hadLines) this.publish()
    this.#hadLines = hasLines
    this.#next = setTimeout(() => this.#look(), isFull ? 0 : lookEveryMs)
  }

  /** Takes the next lines. `isFull`: there are more. */
  #read(): { hasLines: boolean; isFull: boolean } {
    const bytes = readSync(this.#descriptor, incoming, 0, incoming.length, this.#position)
    const isFull = bytes === incoming.length
    const start = this.#position
    const end = incoming.subarray(0, bytes).lastIndexOf(newline) + 1
    if (end === 0) {
      if (isFull) this.#position += bytes // no line of HAProxy
      return { hasLines: isFull, isFull }
    }
    const found: Found[] = []
    let at = start
    // HAProxy's lines are ASCII, and each character of `latin1` is a byte.
    for (const line of incoming.toString('latin1', 0, end - 1).split('\n')) {
      at += line.length + 1
      const sums = measured(line)
      if (sums) found.push({ line, sums, end: at })
    }
    if (!this.#write(found)) return { hasLines: false, isFull: false } // the disk is full: the rest is read again
    this.#position = start + end
    this.#hasNews = true
    return { hasLines: true, isFull }
  }

  /** Whether all are written. */
  #write(found: Found[]): boolean {
    if (found.length === 0) return true
    const written = this.#writer.addAll(
      found.map(({ line, end }) => ({
        log: `${line}\n`,
        stream: 'stdout',
        attrs: { n: `${this.#file} ${end}` },
      })),
    )
    const now = Date.now()
    for (const { sums } of found.slice(0, written.length)) this.#tallies.add(sums, now)
    const last = found[written.length - 1]
    if (last) {
      this.#upTo = written.at(-1)?.time ?? this.#upTo
      this.#position = last.end
      this.#cut.upTo(last.end)
      this.#hasNews = true
    }
    return written.length === found.length
  }

  /** Whether this is still the load balancer's log, with the same settings. */
  isCurrent(): boolean {
    try {
      return (
        statSync(this.#place.log, { bigint: true }).ino === this.#inode &&
        readFileSync(this.#place.logSettings, 'utf8') === this.#settings
      )
    } catch {
      return false
    }
  }

  /** Writes the sums for the host's worker. Without requests, latencies still grow old. */
  publish(): void {
    const sums = this.#tallies.result(Date.now())
    if (!this.#hasNews && sums.latencies.length === 0) return
    this.#hasNews = sums.latencies.length > 0
    const tallied: Tallied = {
      started_at: this.#startedAt,
      up_to: this.#upTo,
      position: this.#position,
      ...sums,
    }
    try {
      writeFileSync(`${this.#place.tallies}.new`, JSON.stringify(tallied), { mode: 0o600 })
      renameSync(`${this.#place.tallies}.new`, this.#place.tallies)
    } catch {
      // The load balancer is being removed.
    }
  }

  close(): void {
    clearTimeout(this.#next)
    this.publish()
    closeSync(this.#descriptor)
    this.#writer.close()
  }
}

interface Found {
  line: string
  sums: Measured
  /** Where the line ends in HAProxy's file. */
  end: number
}

/** Throws if the file has no head. */
function headOf(descriptor: number): { file: string; end: number } {
  const start = Buffer.alloc(100)
  readSync(descriptor, start, 0, start.length, 0)
  const [line = '', file] = /^log ([\w-]+)\n/.exec(start.toString('latin1')) ?? []
  if (file === undefined) throw new Error('not a log')
  return { file, end: line.length }
}

const pageBytes = 4096
const cutBytes = 8 * 1024 * 1024

/** Cuts out of HAProxy's file what was carried: its blocks are free, and other bytes stay where they are. */
class Cut {
  readonly #path: string
  /** The head is in the first page. */
  #from = pageBytes
  #isBusy = false

  constructor(path: string) {
    this.#path = path
  }

  upTo(end: number): void {
    const length = Math.floor(end / pageBytes) * pageBytes - this.#from
    if (this.#isBusy || length < cutBytes) return
    this.#isBusy = true
    const range = ['--offset', String(this.#from), '--length', String(length)]
    // A file system that cannot cut keeps all.
    run('fallocate', ['--punch-hole', ...range, this.#path])
      .catch(() => {})
      .finally(() => {
        this.#from += length
        this.#isBusy = false
      })
  }
}

/** Null if there are none. */
export function readTallied(path: string): Tallied | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Tallied
  } catch {
    return null
  }
}
