import { closeSync, constants, openSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { Socket } from 'node:net'
import { linesOf } from '../system/unix-sockets.ts'
import { LogFileWriter } from '../system/log-writer.ts'
import { readAccess } from './access-log.ts'
import type { Place } from './places.ts'
import { type Tallied, Tallies } from './tallies.ts'

// Carries the access log of one load balancer from its fifo to its files, and sums it up.

export interface LogSettings {
  path: string
  file_bytes: number
  most_files: number
}

type Carried = Pick<Place, 'log' | 'logSettings' | 'tallies'>

const longestLine = 128 * 1024

export class LogCarrier {
  readonly #place: Carried
  readonly #inode: bigint
  readonly #settings: string
  readonly #socket: Socket
  readonly #writer: LogFileWriter<{ log: string; stream: 'stdout'; time: string }>
  readonly #tallies: Tallies
  #hasNews = true

  /** Throws if the load balancer has no log at this moment. */
  constructor(place: Carried) {
    this.#place = place
    this.#settings = readFileSync(place.logSettings, 'utf8')
    const { path, file_bytes, most_files } = JSON.parse(this.#settings) as LogSettings
    // For reading and writing, so that there is no end of the file when HAProxy restarts.
    const descriptor = openSync(place.log, constants.O_RDWR | constants.O_NONBLOCK)
    try {
      this.#inode = inodeOf(place.log)
      this.#writer = new LogFileWriter(path, { fileBytes: file_bytes, mostFiles: most_files })
      this.#tallies = new Tallies(readTallied(place.tallies)?.tallies ?? [])
    } catch (error) {
      closeSync(descriptor)
      throw error
    }
    this.#socket = new Socket({ fd: descriptor, readable: true, writable: false })
    this.#socket.on('error', () => {})
    linesOf(this.#socket, (line) => this.#take(line), longestLine)
    this.#socket.resume()
  }

  #take(line: string): void {
    const entry = readAccess(line)
    if (!entry) return // HAProxy's own messages
    this.#writer.add({ log: `${JSON.stringify(entry)}\n`, stream: 'stdout' })
    this.#tallies.add(entry, Date.now())
    this.#hasNews = true
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
    const result = this.#tallies.result(Date.now())
    if (!this.#hasNews && result.latencies.length === 0) return
    this.#hasNews = result.latencies.length > 0
    try {
      writeFileSync(`${this.#place.tallies}.new`, JSON.stringify(result), { mode: 0o600 })
      renameSync(`${this.#place.tallies}.new`, this.#place.tallies)
    } catch {
      // The load balancer is being removed.
    }
  }

  close(): void {
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
