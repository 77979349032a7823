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
import { dirname } from 'node:path'
import { makeTimes } from './times.ts'

// Writes log files in the format and under the names of the Docker Engine's `json-file` driver (log-files.ts).

/** As in the file. The order of fields matters: readers look for the time at an entry's end. */
export interface LogLine {
  log: string
  stream: 'stdout' | 'stderr'
  attrs?: { n: string }
  time: string
}

const longestEntry = 128 * 1024

/** Appends entries to a log. There must be only one for each log. */
export class LogFileWriter<Line extends LogLine> {
  /** The last entry at the opening. */
  readonly lastLine: Line | null
  readonly #path: string
  readonly #fileBytes: number
  readonly #mostFiles: number
  #descriptor: number
  #bytes: number
  readonly #now: () => string

  /** `mostFiles`: full files beside the one being written. */
  constructor(path: string, { fileBytes, mostFiles }: { fileBytes: number; mostFiles: number }) {
    this.#path = path
    this.#fileBytes = fileBytes
    this.#mostFiles = mostFiles
    mkdirSync(dirname(path), { recursive: true })
    this.#descriptor = openSync(path, 'a+', 0o600)
    this.#bytes = wholeLines(this.#descriptor)
    ftruncateSync(this.#descriptor, this.#bytes) // a writer was killed while writing a line
    this.lastLine = (lastEntry(this.#descriptor) ?? lastOf(`${path}.1`)) as Line | null
    this.#now = makeTimes(this.lastLine?.time ?? null)
  }

  /** Null if the disk is full: then nothing is written. */
  add(line: Omit<Line, 'time'>): Line | null {
    return this.addAll([line])[0] ?? null
  }

  /** Writes many at once, and returns those that are written: not all if the disk is full. */
  addAll(lines: Omit<Line, 'time'>[]): Line[] {
    const added: Line[] = []
    let [entries, text, bytes]: [Line[], string, number] = [[], '', 0]
    const write = (): boolean => {
      if (!this.#write(text, bytes)) return false
      this.#bytes += bytes
      added.push(...entries)
      entries = []
      text = ''
      bytes = 0
      return true
    }
    for (const line of lines) {
      const entry = { ...line, time: this.#now() } as Line
      const next = `${JSON.stringify(entry)}\n`
      const size = Buffer.byteLength(next)
      if (this.#bytes + bytes > 0 && this.#bytes + bytes + size > this.#fileBytes) {
        if (!write()) return added
        this.#rotate()
      }
      entries.push(entry)
      text += next
      bytes += size
    }
    write()
    return added
  }

  #write(text: string, bytes: number): boolean {
    try {
      if (writeSync(this.#descriptor, text) === bytes) return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
    }
    ftruncateSync(this.#descriptor, this.#bytes)
    return false
  }

  close(): void {
    closeSync(this.#descriptor)
  }

  /** Rotates like the Docker Engine, see log-names.ts. */
  #rotate(): void {
    const [path, most] = [this.#path, this.#mostFiles]
    closeSync(this.#descriptor)
    for (let number = most - 1; number >= 1; number--)
      if (existsSync(`${path}.${number}`)) renameSync(`${path}.${number}`, `${path}.${number + 1}`)
    if (most > 0) renameSync(path, `${path}.1`)
    this.#descriptor = openSync(path, most > 0 ? 'a+' : 'w+', 0o600)
    this.#bytes = 0
  }
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

function lastEntry(descriptor: number): LogLine | null {
  const text = readEnd(descriptor, fstatSync(descriptor).size).toString().trimEnd()
  const line = text.slice(text.lastIndexOf('\n') + 1)
  return line === '' ? null : (JSON.parse(line) as LogLine)
}

function lastOf(path: string): LogLine | null {
  if (!existsSync(path)) return null
  const descriptor = openSync(path, 'r')
  try {
    return lastEntry(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
