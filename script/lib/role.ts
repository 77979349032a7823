import { type ChildProcess, spawn } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { LogFile } from './logs.ts'
import { endRecorded, forgetPid, recordPid } from './processes.ts'

const firstBackoffMs = 200
const lastBackoffMs = 5_000
/** A role that ran this long was healthy; its next crash starts the back-off again. */
const healthyMs = 30_000
const readyWithinMs = 180_000
const maxFirstCrashes = 4

export type RoleState = 'stopped' | 'starting' | 'running' | 'stopping' | 'waiting'

/** How to start, check and stop one process of the platform. */
export interface RoleSpec {
  name: string
  command: string
  args: string[]
  env: Record<string, string>
  /** Runs before each start: removes leftovers of a crash. */
  prepare?: () => Promise<void>
  /** Resolves when the process is ready; rejects when `signal` aborts, as it does when the process ends. */
  ready: (started: { pid: number; log: LogFile; signal: AbortSignal }) => Promise<void>
  /** From SIGTERM to SIGKILL, in milliseconds. */
  graceMs: number
}

/** A role in the answer of `GET /roles`. */
export interface RoleStatus {
  name: string
  pid: number | null
  state: RoleState
  restarts: number
  since: string
}

/** Keeps one process running: restarts it with back-off whenever it ends, until it is stopped. */
export class Role extends EventEmitter<{ state: [RoleState]; note: [level: 'info' | 'warn', text: string] }> {
  readonly spec: RoleSpec
  readonly log: LogFile
  readonly #run: string
  readonly #cwd: string
  #state: RoleState = 'stopped'
  #since = new Date()
  #restarts = 0
  #wanted = false
  #child: ChildProcess | undefined
  #wake = new AbortController()
  #loop: Promise<void> = Promise.resolve()

  constructor(spec: RoleSpec, folders: { run: string; cwd: string; log: string }) {
    super()
    this.spec = spec
    this.log = new LogFile(join(folders.log, `${spec.name}.log`))
    this.#run = folders.run
    this.#cwd = folders.cwd
  }

  get status(): RoleStatus {
    return {
      name: this.spec.name,
      pid: this.#child?.pid ?? null,
      state: this.#state,
      restarts: this.#restarts,
      since: this.#since.toISOString(),
    }
  }

  /**
   * Starts the role unless it runs, and resolves when it is ready.
   * @throws after a minute, or after `maxFirstCrashes` crashes; the restarts continue all the same.
   */
  async start(): Promise<void> {
    if (!this.#wanted) {
      this.#wanted = true
      this.#loop = this.#loop.then(() => this.#keepRunning())
    }
    const deadline = AbortSignal.timeout(readyWithinMs)
    const crashes = this.#restarts
    while (this.#state !== 'running') {
      await once(this, 'state', { signal: deadline }).catch(() => {})
      if (!this.#wanted) throw new Error(`${this.spec.name} was stopped while it started`)
      if (deadline.aborted || this.#restarts - crashes >= maxFirstCrashes) {
        throw new Error(
          `${this.spec.name} did not become ready. The end of ${this.log.path}:\n${this.log.tail()}`,
        )
      }
    }
  }

  /** Ends the role and keeps it stopped: SIGTERM, and SIGKILL after its grace. */
  async stop(): Promise<void> {
    await this.#end('SIGTERM')
  }

  /** Ends the role as a power cut would, and keeps it stopped. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL')
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    this.#wanted = false
    this.#wake.abort()
    const child = this.#child
    if (child && (this.#state !== 'stopping' || signal === 'SIGKILL')) {
      this.#enter('stopping')
      child.kill(signal)
    }
    const late = setTimeout(() => child?.kill('SIGKILL'), this.spec.graceMs)
    await this.#loop
    clearTimeout(late)
  }

  async #keepRunning(): Promise<void> {
    let backoffMs = firstBackoffMs
    while (this.#wanted) {
      this.#wake = new AbortController()
      const begun = Date.now()
      const end = await this.#runOnce().catch((error: Error) => error.message)
      if (!this.#wanted) break
      if (Date.now() - begun > healthyMs) backoffMs = firstBackoffMs
      this.#restarts++
      this.emit(
        'note',
        'warn',
        `${this.spec.name} ended by itself (${end}); restarting in ${backoffMs / 1000} s`,
      )
      this.#enter('waiting')
      await sleep(backoffMs, undefined, { signal: this.#wake.signal }).catch(() => {})
      backoffMs = Math.min(backoffMs * 2, lastBackoffMs)
    }
    this.#enter('stopped')
  }

  /** Runs the process to its end, and returns how it ended. */
  async #runOnce(): Promise<string> {
    const { name, command, args, env } = this.spec
    this.#enter('starting')
    // Left by a killed supervisor, or by a start that failed half-way.
    await endRecorded(this.#run, name, this.spec.graceMs)
    await this.spec.prepare?.()
    if (!this.#wanted) return 'stopped before it started'
    // A separate process group: Ctrl-C must reach only the supervisor, which stops the roles in order.
    const child = spawn(command, args, {
      cwd: this.#cwd,
      env,
      detached: true,
      stdio: ['ignore', this.log.descriptor, this.log.descriptor],
    })
    const exit = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
    this.#child = child
    const exited = new AbortController()
    try {
      if (child.pid === undefined) await exit // rejects with the error of spawn
      const pid = child.pid as number
      await this.#record(child, pid, exit)
      void this.#waitUntilReady(child, pid, exited.signal)
      const [code, signal] = await exit
      return signal ?? `exit code ${code}`
    } finally {
      exited.abort(new Error(`${name} ended`))
      this.#child = undefined
      forgetPid(this.#run, name)
    }
  }

  /** A process that a later server could not find must not go on: on a full disk, it is not recorded. */
  async #record(child: ChildProcess, pid: number, exit: Promise<unknown>): Promise<void> {
    try {
      recordPid(this.#run, this.spec.name, pid)
    } catch (error) {
      child.kill('SIGKILL')
      await exit
      throw new Error(`its pid was not recorded: ${(error as Error).message}`, { cause: error })
    }
  }

  async #waitUntilReady(child: ChildProcess, pid: number, signal: AbortSignal): Promise<void> {
    const begun = Date.now()
    try {
      await this.spec.ready({ pid, log: this.log, signal })
      if (signal.aborted || this.#state !== 'starting') return
      this.emit('note', 'info', `${this.spec.name} is ready (${((Date.now() - begun) / 1000).toFixed(1)} s)`)
      this.#enter('running')
    } catch (error) {
      if (signal.aborted) return
      this.emit('note', 'warn', `${this.spec.name} did not become ready: ${String(error)}`)
      child.kill() // so that it is started again
    }
  }

  #enter(state: RoleState): void {
    this.#state = state
    this.#since = new Date()
    this.emit('state', state)
  }
}
