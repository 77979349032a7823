import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

// The launcher (launcher/main.go) starts programs for this process, because a fork takes time in proportion to a process's
// memory: 9 to 18 ms of CPU time for a host worker, in which nothing else runs, and less than 1 ms for the launcher.

export interface Request {
  program: string
  args: string[]
  input?: string | undefined
  signal?: AbortSignal | undefined
  onOutput?: ((text: string) => void) | undefined
}

/** As in launcher/main.go. */
interface Answer {
  id: number
  ended: boolean
  stdout: string
  stderr: string
  code: number
  signal: number
  errno: string
}

interface Pending {
  onAnswer: (answer: Answer) => void
  onLost: (error: Error) => void
}

/** One launcher process. Programs inherit its environment. */
export class Launcher {
  readonly #child: ChildProcess
  readonly #pending = new Map<number, Pending>()
  #count = 0
  isRunning = true

  constructor(path: string, env: Record<string, string>) {
    this.#child = spawn(path, [], { env, stdio: ['pipe', 'pipe', 'inherit'] })
    const lose = (why: string): void => {
      this.isRunning = false
      for (const one of this.#pending.values()) one.onLost(new Error(`The launcher ended: ${why}`))
    }
    this.#child.on('error', (error) => lose(error.message))
    this.#child.on('exit', (code, signal) => lose(String(signal ?? code)))
    this.#child.stdin?.on('error', () => {}) // its end says so
    if (this.#child.stdout)
      createInterface({ input: this.#child.stdout }).on('line', (line) => {
        const answer = JSON.parse(line) as Answer
        this.#pending.get(answer.id)?.onAnswer(answer)
      })
    this.#hold()
  }

  /** Runs a program and returns its stdout. Throws as `execFile` of node:child_process. */
  async run({ program, args, input = '', signal, onOutput }: Request): Promise<string> {
    const id = ++this.#count
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    const parts: string[] = []
    const onAnswer = (answer: Answer): void => {
      parts.push(answer.stdout)
      if (onOutput && answer.stdout) onOutput(answer.stdout)
      if (answer.ended) resolve(answer)
    }
    const abort = (): void => {
      this.#send({ id, kill: true })
      reject(signal?.reason)
    }
    this.#pending.set(id, { onAnswer, onLost: reject })
    this.#hold()
    signal?.addEventListener('abort', abort)
    try {
      this.#send({ id, program, args, input, stream: onOutput !== undefined })
      const { code, signal: killedBy, errno, stderr } = await promise
      const stdout = parts.join('')
      if (code === 0 && killedBy === 0 && errno === '') return stdout
      const command = [program, ...args].join(' ')
      throw Object.assign(new Error(`Command failed: ${command}\n${stderr}`), {
        code: errno === '' ? code : errno,
        signal: killedBy,
        stdout,
        stderr,
      })
    } finally {
      signal?.removeEventListener('abort', abort)
      this.#pending.delete(id)
      this.#hold()
    }
  }

  /** Programs that still run go on. */
  close(): void {
    this.#child.stdin?.end()
  }

  #send(request: object): void {
    this.#child.stdin?.write(`${JSON.stringify(request)}\n`)
  }

  /** An idle launcher does not keep this process alive. */
  #hold(): void {
    const holds = this.#pending.size > 0
    for (const handle of [this.#child, this.#child.stdin, this.#child.stdout] as (Handle | null)[])
      if (holds) handle?.ref()
      else handle?.unref()
  }
}

interface Handle {
  ref(): void
  unref(): void
}
