import {
  closeSync,
  constants,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { Socket } from 'node:net'
import type { LogSource } from '../log-files.ts'
import { openFiles } from '../system/log-files.ts'
import { entriesOf } from '../system/log-reader.ts'
import { LogFileWriter } from '../system/log-writer.ts'
import { linesOf } from '../system/unix-sockets.ts'
import { type AccessEntry, readAccess } from './access-log.ts'
import type { Place } from './places.ts'
import { type Tallied, Tallies } from './tallies.ts'

// Carries the access log of one load balancer from its fifo to its files, and sums it up.

export type LogSettings = LogSource & { file_bytes: number }

type Carried = Pick<Place, 'log' | 'logSettings' | 'tallies'>

const longestLine = 128 * 1024
const readAtOnce = 64 * 1024

/** A line in the fifo that is no request: when it is noted with the sums, all lines before it are written. */
export const markLine = (mark: string): string => `mark ${mark}\n`
const markIn = (line: string): string | undefined => /^mark ([\w-]+)$/.exec(line)?.[1]

export class LogCarrier {
  readonly #place: Carried
  readonly #inode: bigint
  readonly #settings: string
  readonly #descriptor: number
  readonly #socket: Socket
  readonly #writer: LogFileWriter<{ log: string; stream: 'stdout'; time: string }>
  readonly #tallies: Tallies
  readonly #startedAt: string
  #upTo: string
  #mark: string | null
  #hasNews = true

  /** Throws if the load balancer has no log at this moment. */
  constructor(place: Carried) {
    this.#place = place
    this.#settings = readFileSync(place.logSettings, 'utf8')
    const settings = JSON.parse(this.#settings) as LogSettings
    const { path, file_bytes, most_files } = settings
    // For reading and writing, so that there is no end of the file when HAProxy restarts.
    this.#descriptor = openSync(place.log, constants.O_RDWR | constants.O_NONBLOCK)
    try {
      this.#inode = inodeOf(place.log)
      this.#writer = new LogFileWriter(path, { fileBytes: file_bytes, mostFiles: most_files })
      const before = readTallied(place.tallies)
      this.#tallies = new Tallies(before?.tallies ?? [])
      this.#startedAt = before?.started_at ?? new Date().toISOString()
      this.#upTo = before?.up_to ?? this.#writer.lastLine?.time ?? ''
      this.#mark = before?.mark ?? null
      this.#addWritten(settings)
    } catch (error) {
      closeSync(this.#descriptor)
      throw error
    }
    this.#socket = new Socket({ fd: this.#descriptor, readable: true, writable: false })
    this.#socket.on('error', () => {})
    linesOf(this.#socket, (line) => this.#take(line), longestLine)
    this.#socket.resume()
  }

  /** Adds what an earlier reader has written and not summed up: it was killed. */
  #addWritten(source: LogSource): void {
    if ((this.#writer.lastLine?.time ?? '') <= this.#upTo) return
    for (const file of openFiles(source, 'all')) {
      for (const { log, time } of entriesOf(file)) {
        if (time <= this.#upTo) continue
        this.#tallies.add(JSON.parse(log) as AccessEntry, Date.parse(time))
        this.#upTo = time
      }
      file.close()
    }
  }

  #take(line: string): void {
    const entry = readAccess(line)
    if (entry) {
      // Null: the disk is full.
      const written = this.#writer.add({ log: `${JSON.stringify(entry)}\n`, stream: 'stdout' })
      this.#upTo = written?.time ?? this.#upTo
      this.#tallies.add(entry, Date.now())
      this.#hasNews = true
    }
    const mark = markIn(line)
    if (mark === undefined) return // HAProxy's own messages
    this.#mark = mark
    this.#hasNews = true
    this.publish()
  }

  /** Whether this is still the load balancer's log, with the same settings. */
  isCurrent(): boolean {
    try {
      return (
        inodeOf(this.#place.log) === this.#inode &&
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
      mark: this.#mark,
      ...sums,
    }
    try {
      writeFileSync(`${this.#place.tallies}.new`, JSON.stringify(tallied), { mode: 0o600 })
      renameSync(`${this.#place.tallies}.new`, this.#place.tallies)
    } catch {
      // The load balancer is being removed.
    }
  }

  /** Also writes what waits in the fifo, so that no line is cut in two. */
  close(): void {
    try {
      for (const buffer = Buffer.alloc(readAtOnce); ; ) {
        const bytes = readSync(this.#descriptor, buffer)
        if (bytes === 0) break
        this.#socket.emit('data', Buffer.from(buffer.subarray(0, bytes)))
      }
    } catch {
      // There is no more.
    }
    this.publish()
    this.#socket.destroy()
    this.#writer.close()
  }
}

const inodeOf = (path: string): bigint => statSync(path, { bigint: true }).ino

/** Null if there are none. */
export function readTallied(path: string): Tallied | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Tallied
  } catch {
    return null
  }
}
