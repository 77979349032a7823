import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
} from 'node:fs'
import { totalmem } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'

// PostgreSQL as a child of this process. It has no port: its socket is in a folder of its user's.

export interface PostgresSettings {
  /** The store's folder: the data is in it. */
  folder: string
  /** Of PostgreSQL's programs. */
  programs: string
  /** As which it runs if this process is root's, since PostgreSQL refuses root. */
  user: number | null
}

export const database = 'postgres'
export const superuser = 'store'

const mib = 1024 ** 2
const againAfterMs = 500
const looksEveryMs = 50
/** Less than what a container has to stop, together with the requests under way. */
const endsWithinMs = 5_000
/** Small, since each removal ends one early. */
const segmentMib = 4

/** Starts PostgreSQL, and starts it again whenever it ends, until `stop`. */
export class Postgres {
  readonly #settings: PostgresSettings
  readonly #data: string
  /** Of its socket. */
  readonly host: string
  #child: ChildProcess | null = null
  #isStopping = false
  #ended: Promise<void> = Promise.resolve()
  #answers = false

  constructor(settings: PostgresSettings) {
    this.#settings = settings
    this.#data = join(settings.folder, 'postgresql')
    this.host = join(settings.folder, 'socket')
  }

  /** It takes queries. */
  get answers(): boolean {
    return this.#answers
  }

  /** Makes the data folder, if it is not there. Rejects if PostgreSQL does not start the first time. */
  async start(): Promise<void> {
    for (const folder of [this.#settings.folder, this.host]) this.makeFolder(folder)
    await endLeft(this.#data, this.host)
    if (!existsSync(this.#data)) await this.#makeData()
    await this.#run()
    this.#ended = this.#keep()
  }

  /** Ends it after a checkpoint, or at once if that takes too long. */
  async stop(): Promise<void> {
    this.#isStopping = true
    this.#answers = false
    this.#child?.kill('SIGINT') // PostgreSQL's fast shutdown: it cuts queries under way
    const wait = new AbortController()
    const isLate = await Promise.race([
      this.#ended.then(() => false),
      delay(endsWithinMs, true, { signal: wait.signal }).catch(() => false),
    ])
    wait.abort()
    // Seen once, after one of its processes had been killed: it stopped, and never ended.
    if (isLate) await endLeft(this.#data, this.host)
    await this.#ended
  }

  /** Runs one of PostgreSQL's programs. Rejects if it fails. */
  async program(name: string, args: string[]): Promise<void> {
    await promisify(execFile)(join(this.#settings.programs, name), args, this.#asUser())
  }

  async #keep(): Promise<void> {
    for (;;) {
      const child = this.#child
      if (child && child.exitCode === null && child.signalCode === null) await once(child, 'exit')
      this.#answers = false
      if (this.#isStopping) return
      try {
        await this.#run()
      } catch {
        if (!this.#isStopping) await delay(againAfterMs)
      }
    }
  }

  /** Resolves when it takes queries. */
  async #run(): Promise<void> {
    // Also what is left of a postmaster that was killed: its children end by themselves, and a new one does not wait for them.
    await endLeft(this.#data, this.host)
    if (this.#isStopping) return
    const settings = Object.entries(configOf(this.host, memoryBytes())).flatMap(([name, value]) => [
      '-c',
      `${name}=${value}`,
    ])
    const child = spawn(join(this.#settings.programs, 'postgres'), ['-D', this.#data, ...settings], {
      ...this.#asUser(),
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: true, // a terminal's signals are for the store, which ends it
    })
    this.#child = child
    // Through this process: if PostgreSQL had its output itself, that would stay open when this process is killed.
    child.stderr.pipe(process.stderr, { end: false })
    const failed = Promise.race([
      once(child, 'exit').then(() => {
        throw new Error('PostgreSQL ended at its start')
      }),
      once(child, 'error').then(([error]) => {
        throw error as Error
      }),
    ])
    failed.catch(() => {}) // later, `#keep` sees that it ends
    await Promise.race([this.#awaitReady(child), failed])
    this.#answers = !this.#isStopping
  }

  /** PostgreSQL says in its lock how far it is. */
  async #awaitReady(child: ChildProcess): Promise<void> {
    const isReady = () => {
      const [pid, , , , , , , status] = readIfThere(join(this.#data, 'postmaster.pid')).split('\n')
      return Number(pid) === child.pid && status?.trim() === 'ready'
    }
    const runs = () => child.pid !== undefined && child.exitCode === null && child.signalCode === null
    while (runs() && !isReady()) await delay(looksEveryMs)
  }

  /** All of it or nothing, though the process may be killed. */
  async #makeData(): Promise<void> {
    const made = `${this.#data}.new`
    rmSync(made, { recursive: true, force: true })
    this.makeFolder(made)
    const options = {
      pgdata: made,
      username: superuser,
      auth: 'trust',
      encoding: 'UTF8',
      locale: 'C',
      'wal-segsize': segmentMib,
    }
    await this.program('initdb', [
      '--no-instructions',
      ...Object.entries(options).map(([option, value]) => `--${option}=${value}`),
    ])
    renameSync(made, this.#data)
  }

  /** For its user alone. */
  makeFolder(folder: string): void {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    const { user } = this.#settings
    if (user !== null && process.getuid?.() === 0) chownSync(folder, user, user)
  }

  #asUser(): { uid?: number; gid?: number; cwd: string } {
    const { user, folder } = this.#settings
    // A folder that its user may enter.
    return user !== null && process.getuid?.() === 0 ? { uid: user, gid: user, cwd: folder } : { cwd: folder }
  }
}

/** What this process and its children may use: the container's limit, or the machine's memory. */
function memoryBytes(): number {
  const limit = process.constrainedMemory()
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem()
}

const bounded = (least: number, value: number, most: number): string =>
  `${Math.round(Math.min(most, Math.max(least, value)) / mib)}MB`

/** https://www.postgresql.org/docs/17/runtime-config.html */
const configOf = (socketFolder: string, memory: number): Record<string, string | number> => ({
  listen_addresses: '',
  unix_socket_directories: socketFolder,
  unix_socket_permissions: '0700',
  max_connections: 24,
  shared_buffers: bounded(64 * mib, memory / 4, 8192 * mib),
  maintenance_work_mem: bounded(32 * mib, memory / 16, 1024 * mib),
  work_mem: bounded(8 * mib, memory / 64, 64 * mib),
  max_locks_per_transaction: 1024, // a collection has three tables for each 8,192 chunks
  jit: 'off', // searches take milliseconds
  max_parallel_workers_per_gather: 0,
  max_parallel_maintenance_workers: 0,
  // What is removed has to leave the log, too: none is kept for replicas, and no file of it is used again.
  wal_level: 'minimal',
  max_wal_senders: 0,
  wal_recycle: 'off',
  min_wal_size: `${2 * segmentMib}MB`,
  max_wal_size: '256MB',
  // The store vacuums, after what is removed. Statistics would have samples of texts.
  autovacuum: 'off',
  // Never a text: neither a query nor its parameters, nor the details of an error.
  log_min_messages: 'fatal',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_parameter_max_length_on_error: 0,
})

/**
 * Ends PostgreSQL's processes that a killed store has left with this data, and takes away their locks. PostgreSQL would keep to a
 * lock whose number some process has: in a new container, that may be any.
 */
async function endLeft(data: string, socketFolder: string): Promise<void> {
  // PostgreSQL's processes all work in the folder of their data.
  const folder = existsSync(data) ? realpathSync(data) : null
  const left = () => processes().filter((pid) => folder !== null && workingFolderOf(pid) === folder)
  for (let pids = left(); pids.length; pids = left()) {
    for (const pid of pids) end(pid)
    await delay(looksEveryMs)
  }
  const locks = [join(data, 'postmaster.pid'), join(socketFolder, '.s.PGSQL.5432.lock')]
  for (const lock of locks) rmSync(lock, { force: true })
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

const processes = (): number[] => readdirSync('/proc').map(Number).filter(Number.isInteger)

function workingFolderOf(pid: number): string | null {
  try {
    return readlinkSync(`/proc/${pid}/cwd`)
  } catch {
    return null // it has ended, or is another user's
  }
}

function end(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
