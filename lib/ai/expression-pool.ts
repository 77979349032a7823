import { type ChildProcess, fork } from 'node:child_process'
import { readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { evaluationBounds } from './bounds.ts'
import type { Check, Evaluation, Job, Message } from './expression-process.ts'
import type { SchemaFault } from './schema-checks.ts'

// Expressions are evaluated in processes of their own, because neither CEL nor what tenants give it bounds the time and
// memory that an expression takes. The memory of a thread has no bound that holds: V8 ends the whole program if the
// values of one JSON.parse do not fit. A job has 100 ms of its process's processor time, not of the clock: an expression
// must not fail because other programs had the processors.

/** The expressions of a node have no value. The workflow's author can read the message. Trying again does not help. */
export class NoValue extends Error {
  override readonly name = 'NoValue'
  readonly code: 'failed' | 'too_large' | 'took_too_long'
  /** JSON pointer to the part that failed. */
  readonly pointer: string | null

  constructor(code: NoValue['code'], message: string, pointer: string | null = null) {
    super(message)
    this.code = code
    this.pointer = pointer
  }
}

interface Waiting {
  job: Job
  resolve: (result: string) => void
  reject: (error: Error) => void
}

const tooLong = (ms: number) => new NoValue('took_too_long', `The evaluation took more than ${ms} ms`)
const tooMuchMemory = () => new NoValue('too_large', 'The evaluation took too much memory')

const project = fileURLToPath(new URL('../..', import.meta.url))
const program = fileURLToPath(new URL('./expression-process.ts', import.meta.url))
/** The process reads its own code. It writes no file, and starts neither program nor thread. */
const permissions = [
  '--permission',
  ...[`${project}lib/`, `${project}package.json`, `${realpathSync(`${project}node_modules`)}/`].map(
    (path) => `--allow-fs-read=${path}`,
  ),
]
/** How V8 or the kernel ends a process without memory. */
const ofMemory: NodeJS.Signals[] = ['SIGABRT', 'SIGKILL', 'SIGTRAP', 'SIGILL', 'SIGSEGV']

export class ExpressionPool {
  readonly #idle: Evaluator[] = []
  readonly #all = new Set<Evaluator>()
  readonly #queue: Waiting[] = []
  readonly #most: number
  readonly #idleMs: number
  #isClosed = false

  /** Processes start when they are first needed, and end when they have had nothing to do for `idleMs`. */
  constructor(most = 2, idleMs = 300_000) {
    this.#most = most
    this.#idleMs = idleMs
  }

  /** The JSON of an object with what was wanted, by pointer. Rejects with NoValue. */
  evaluate(evaluation: Omit<Evaluation, 'is'>): Promise<string> {
    return this.#run({ is: 'evaluation', ...evaluation })
  }

  /** Null if the value fits the schema, else its first fault. Rejects with NoValue. */
  async check(check: Omit<Check, 'is'>): Promise<SchemaFault | null> {
    return JSON.parse(await this.#run({ is: 'check', ...check })) as SchemaFault | null
  }

  #run(job: Job): Promise<string> {
    if (Buffer.byteLength(job.given) > evaluationBounds.inputBytes) {
      return Promise.reject(new NoValue('too_large', 'The values that the expressions name are too large'))
    }
    return new Promise((resolve, reject) => {
      if (this.#isClosed) return reject(new Error('The pool is closed'))
      this.#queue.push({ job, resolve, reject })
      this.#next()
    })
  }

  /** Ends all processes. What waits is rejected. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const { reject } of this.#queue.splice(0)) reject(new Error('The pool is closed'))
    await Promise.all([...this.#all].map((evaluator) => evaluator.end(new Error('The pool is closed'))))
  }

  #next(): void {
    const [waiting] = this.#queue
    const evaluator = waiting && (this.#idle.pop() ?? this.#start())
    if (!evaluator) return
    this.#queue.shift()
    evaluator.run(waiting)
  }

  #start(): Evaluator | null {
    if (this.#all.size >= this.#most) return null
    const evaluator: Evaluator = new Evaluator({
      idleMs: this.#idleMs,
      onIdle: () => {
        this.#idle.push(evaluator)
        this.#next()
      },
      onEnd: () => {
        this.#all.delete(evaluator)
        const place = this.#idle.indexOf(evaluator)
        if (place >= 0) this.#idle.splice(place, 1)
        if (!this.#isClosed) this.#next()
      },
    })
    this.#all.add(evaluator)
    return evaluator
  }
}

class Evaluator {
  readonly #process: ChildProcess
  readonly #ended: Promise<void>
  readonly #onIdle: () => void
  readonly #idleMs: number
  #waiting: Waiting | null = null
  /** What the process had used when it got its job. */
  #sentAt = 0
  /** Ends the job by processor time, and by the clock. */
  #watch: NodeJS.Timeout | undefined
  #wall: NodeJS.Timeout | undefined
  /** Ends a process that has had nothing to do. */
  #idle: NodeJS.Timeout | undefined

  constructor({ idleMs, onIdle, onEnd }: { idleMs: number; onIdle: () => void; onEnd: () => void }) {
    this.#onIdle = onIdle
    this.#idleMs = idleMs
    this.#process = fork(program, {
      env: {}, // an expression needs none of the program's settings
      execArgv: [`--max-old-space-size=${evaluationBounds.heapMib}`, ...permissions],
      cwd: '/',
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    })
    this.#process.on('message', (message: Message) => this.#hear(message))
    this.#ended = new Promise((resolve) => {
      const over = (reason: Error): void => {
        this.#settle(reason)
        clearTimeout(this.#idle)
        onEnd()
        resolve()
      }
      this.#process.on('exit', (_, signal) => {
        const isFull = signal !== null && ofMemory.includes(signal)
        over(isFull ? tooMuchMemory() : new Error('The process of expressions ended'))
      })
      // It did not start. Another error (it cannot be told something) is followed by its end.
      this.#process.on('error', (error) => this.#process.pid ?? over(error))
    })
    this.#giveWay()
    this.#keepsProgram(false)
  }

  run(waiting: Waiting): void {
    this.#waiting = waiting
    clearTimeout(this.#idle)
    this.#keepsProgram(true)
    const { wallMs, wholeCpuMs } = evaluationBounds
    this.#wall = setTimeout(() => void this.end(tooLong(wallMs)), wallMs)
    this.#sentAt = this.#cpuMs()
    this.#look(this.#sentAt, wholeCpuMs)
    this.#process.send(waiting.job, (error) => error && void this.end(error))
  }

  async end(reason: Error): Promise<void> {
    this.#settle(reason)
    this.#keepsProgram(true) // until it has ended
    this.#process.kill('SIGKILL')
    await this.#ended
  }

  #hear(message: Message): void {
    if (!this.#waiting) return // the process is being ended
    if (message.is === 'begun') return this.#look(this.#cpuMs(), evaluationBounds.cpuMs)
    if (message.is === 'evaluated') return this.#look(this.#sentAt, evaluationBounds.wholeCpuMs)
    if (message.is === 'done') this.#settle(message.result)
    else this.#settle(new NoValue(message.code, message.message, message.pointer))
    this.#keepsProgram(false)
    this.#idle = setTimeout(() => void this.end(new Error('It was idle')), this.#idleMs).unref()
    this.#onIdle()
  }

  /** Ends the job when it has used its time since then, and looks each time when it may have. */
  #look(since: number, mostMs: number): void {
    clearTimeout(this.#watch)
    const left = mostMs - (this.#cpuMs() - since)
    this.#watch = setTimeout(
      () => {
        if (this.#cpuMs() - since >= mostMs) void this.end(tooLong(mostMs))
        else this.#look(since, mostMs)
      },
      Math.max(1, left),
    )
  }

  /** The processor time of the thread that evaluates, which Linux counts in hundredths of a second. */
  #cpuMs(): number {
    const { pid } = this.#process
    try {
      const stat = readFileSync(`/proc/${pid}/task/${pid}/stat`, 'utf8')
      const [utime, stime] = stat
        .slice(stat.lastIndexOf(')') + 2)
        .split(' ')
        .slice(11, 13)
      return (Number(utime) + Number(stime)) * 10
    } catch {
      return 0 // the process has ended
    }
  }

  #settle(result: string | Error): void {
    const waiting = this.#waiting
    this.#waiting = null
    clearTimeout(this.#watch)
    clearTimeout(this.#wall)
    if (typeof result === 'string') waiting?.resolve(result)
    else waiting?.reject(result)
  }

  /** If memory is short, the kernel ends this process before the program that started it. */
  #giveWay(): void {
    try {
      writeFileSync(`/proc/${this.#process.pid}/oom_score_adj`, '1000')
    } catch {
      // It has ended, or this is not Linux.
    }
  }

  /** A kept process does not keep the program. */
  #keepsProgram(isKept: boolean): void {
    for (const held of [this.#process, this.#process.channel]) {
      if (isKept) held?.ref()
      else held?.unref()
    }
  }
}
