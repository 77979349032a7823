import { EventEmitter } from 'node:events'
import {
  copyFileSync,
  existsSync,
  type FSWatcher,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  watch,
} from 'node:fs'
import { prettyFactory } from 'pino-pretty'

const maxBytes = 20 * 2 ** 20

/** One line of a role's log, as pino writes it. */
export interface LogEntry {
  pid?: number
  msg?: string
  [field: string]: unknown
}

/**
 * A log file that a process writes directly, so that the process survives its parent. Emits `line` for each line
 * written after `follow`.
 */
export class LogFile extends EventEmitter<{ line: [string] }> {
  readonly path: string
  #fd: number
  #offset = 0
  #rest = ''
  #watcher: FSWatcher | undefined

  constructor(path: string) {
    super()
    this.path = path
    this.#fd = openSync(path, 'a+', 0o600)
  }

  /** A descriptor for a child's output. It appends, so that truncating the file is enough to restart it. */
  get descriptor(): number {
    return this.#fd
  }

  /**
   * Keeps the file under some 20 MiB, and one older file beside it. A line written between the two steps is lost. On a full
   * disk, it keeps the newest file alone.
   */
  rotate(): void {
    if (fstatSync(this.#fd).size < maxBytes || !existsSync(this.path)) return
    const older = `${this.path}.1`
    try {
      copyFileSync(this.path, older)
    } catch {
      rmSync(older, { force: true })
      return
    }
    ftruncateSync(this.#fd)
  }

  /** Empties the file. */
  clear(): void {
    ftruncateSync(this.#fd)
  }

  /** The last lines, for error messages. */
  tail(lines = 15): string {
    return readFileSync(this.path, 'utf8').trimEnd().split('\n').slice(-lines).join('\n')
  }

  /** Starts to emit `line` for new lines. */
  follow(): void {
    if (this.#watcher) return
    this.#offset = fstatSync(this.#fd).size
    this.#watcher = watch(this.path, () => this.#read())
  }

  #read(): void {
    const { size } = fstatSync(this.#fd) // not by path: the file may have been removed
    if (size < this.#offset) this.#offset = 0
    const buffer = Buffer.alloc(size - this.#offset)
    this.#offset += readSync(this.#fd, buffer, 0, buffer.length, this.#offset)
    const lines = (this.#rest + buffer.toString('utf8')).split('\n')
    this.#rest = lines.pop() ?? ''
    for (const line of lines) this.emit('line', line)
  }

  /** Resolves at the first new line that matches. Rejects when `signal` aborts. */
  async entry(matches: (entry: LogEntry) => boolean, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const look = (line: string) => {
      const entry = parse(line)
      if (entry && matches(entry)) resolve()
    }
    const abort = () => reject(signal.reason as Error)
    this.follow()
    this.on('line', look)
    signal.addEventListener('abort', abort)
    try {
      await promise
    } finally {
      this.off('line', look)
      signal.removeEventListener('abort', abort)
    }
  }
}

function parse(line: string): LogEntry | undefined {
  try {
    return JSON.parse(line) as LogEntry
  } catch {
    return undefined
  }
}

const pretty = prettyFactory({
  colorize: true,
  ignore: 'pid,hostname,role',
  translateTime: 'SYS:HH:MM:ss.l',
  singleLine: true,
})

/** One role's line in readable form for a terminal. */
export const prettyLine = (role: string, line: string): string =>
  `${role.padEnd(9)} ${parse(line) ? pretty(line).trimEnd() : line}\n`
