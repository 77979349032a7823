import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { EngineRefused, EngineUnavailable } from '../errors.ts'
import { DiskInUse } from '../disk-errors.ts'
import {
  type AgentLine,
  AgentMessage,
  type CommandStatus,
  type Hello,
  longestMessageBytes,
} from './messages.ts'
import { connectUnix, linesOf, pace } from '../system/unix-sockets.ts'

// The host's side of images/guest/agent: one JSON object per line, over a serial port of the machine. One connection
// at a time, shared by all requests of the host.

export interface AgentListener {
  /** The number of the last line that the host has. */
  lastLine(): number
  /** Takes lines in order and returns the number of the last line stored. */
  onLines(lines: AgentLine[]): number
  onStatus(status: CommandStatus): void
}

/** Receives a command's output for a terminal or a pipe. */
export interface SessionListener {
  onOutput(data: Buffer): void
  /** What it writes to stderr. A terminal shows it as output. */
  onErrors?(data: Buffer): void
  onAck(bytes: number): void
  onExit(code: number): void
  onLost(): void
}

/** The agent's error answer: `not_started`, `busy` or `failed`. */
export class AgentFault extends Error {
  override readonly name = 'AgentFault'
  readonly code: string
  constructor({ code, message }: { code: string; message: string }) {
    super(message)
    this.code = code
  }
}

// A starting machine receives nothing until its agent runs, so the greeting is repeated.
const greetEveryMs = 50
const answerWithinMs = 30_000
// Reading this takes a tenth of a core; our guests send some megabytes a second at most.
const bytesPerSec = 16 * 1024 ** 2
const ns = 1_000_000
// Good enough: the promise is one second.
const goodRttNs = 50 * ns

export class Agent {
  readonly #socket: Socket
  readonly #listener: AgentListener
  readonly #peer = randomUUID()
  readonly #answers = new Map<number, PromiseWithResolvers<unknown>>()
  readonly #sessions = new Map<string, SessionListener>()
  readonly #greeted = Promise.withResolvers<void>()
  readonly #closed = Promise.withResolvers<void>()
  #ready = false
  #last = 0
  /** From the answer with the shortest round trip: what to add to the machine's clock. */
  #clock: { rttNs: number; deltaNs: number } | null = null
  #hellos = 0
  #missing = 0

  private constructor(socket: Socket, listener: AgentListener) {
    this.#socket = socket
    this.#listener = listener
    this.#greeted.promise.catch(() => {})
    socket.on('close', () => this.#end())
    linesOf(socket, (line) => this.#take(line), longestMessageBytes)
    pace(socket, bytesPerSec)
    void this.#greet()
  }

  /** Connects to the port. The machine may answer later, see `ready`. Throws EngineUnavailable. */
  static async connect(path: string, listener: AgentListener): Promise<Agent> {
    const socket = await connectUnix(path).catch((error: unknown) => {
      throw new EngineUnavailable('The machine is not there', error)
    })
    return new Agent(socket, listener)
  }

  /** Resolves when the connection has ended. */
  get closed(): Promise<void> {
    return this.#closed.promise
  }

  get isReady(): boolean {
    return this.#ready
  }

  /** Waits for the machine's first answer. Throws EngineUnavailable. */
  async ready(withinMs: number): Promise<void> {
    await inTime(this.#greeted.promise, withinMs)
  }

  /** Asks the agent, and returns its answer. Throws AgentFault, EngineUnavailable. */
  async ask(verb: string, args: unknown = null, options: { session?: string; withinMs?: number } = {}) {
    const { session = '', withinMs = answerWithinMs } = options
    if (this.#socket.destroyed) throw gone()
    const id = ++this.#last
    const answer = Promise.withResolvers<unknown>()
    this.#answers.set(id, answer)
    this.#send({ verb, id, session, args })
    try {
      return await inTime(answer.promise, withinMs)
    } finally {
      this.#answers.delete(id)
    }
  }

  /** Sends a message that has no answer. */
  tell(verb: string, args: unknown, session = ''): void {
    if (!this.#socket.destroyed) this.#send({ verb, session, args })
  }

  listen(session: string, listener: SessionListener): void {
    this.#sessions.set(session, listener)
  }

  /** Sets the machine's wall clock to the host's time. */
  async setClock(): Promise<void> {
    this.#clock = null
    await this.ask('clock', await this.clockDelta())
  }

  /** What to add to the machine's wall clock, in nanoseconds. Throws EngineUnavailable. */
  async clockDelta(): Promise<number> {
    const wanted = this.#hellos + 3
    const isKnown = (): boolean => this.#hellos >= wanted || (this.#clock?.rttNs ?? Infinity) < goodRttNs
    for (let tries = 0; !isKnown() && tries < 20; tries++) {
      this.#sayHello()
      const heard = this.#hellos
      for (let waited = 0; this.#hellos === heard && waited < 250; waited++) await delay(2)
    }
    if (!this.#clock) throw silent()
    const { deltaNs } = this.#clock
    this.#clock = null
    return Math.round(deltaNs)
  }

  close(): void {
    this.#socket.destroy()
  }

  #send(message: object): void {
    this.#socket.write(`${JSON.stringify(message)}\n`)
  }

  async #greet(): Promise<void> {
    while (!this.#ready && !this.#socket.destroyed) {
      this.#sayHello()
      await delay(greetEveryMs)
    }
  }

  #sayHello(): void {
    const args = { peer: this.#peer, seq: this.#listener.lastLine(), sent_ns: Date.now() * ns }
    this.tell('hello', args)
  }

  #take(line: string): void {
    const message = parse(line)
    if (!message) return
    if (message.verb === 'hello') return this.#onHello(message.body)
    if (!this.#ready) return // meant for an earlier connection
    switch (message.verb) {
      case 'answer': {
        const answer = this.#answers.get(message.id)
        if (message.fault) answer?.reject(new AgentFault(message.fault))
        else answer?.resolve(message.body)
        return
      }
      case 'status':
        return this.#listener.onStatus(message.body)
      case 'log':
        return this.#onLines(message.body)
      case 'out':
        return this.#sessions.get(message.session)?.onOutput(Buffer.from(message.body, 'base64'))
      case 'err':
        return this.#sessions.get(message.session)?.onErrors?.(Buffer.from(message.body, 'base64'))
      case 'ack':
        return this.#sessions.get(message.session)?.onAck(message.body)
      case 'exit': {
        const session = this.#sessions.get(message.session)
        this.#sessions.delete(message.session)
        return session?.onExit(message.body)
      }
    }
  }

  #onHello({ peer, sent_ns, now_ns, status }: Hello): void {
    if (peer !== this.#peer) return
    const now = Date.now() * ns
    const rttNs = now - sent_ns
    if (!this.#clock || rttNs < this.#clock.rttNs)
      this.#clock = { rttNs, deltaNs: sent_ns + rttNs / 2 - now_ns }
    this.#hellos++
    const isFirst = !this.#ready
    this.#ready = true
    if (isFirst) this.#listener.onStatus(status)
    this.#greeted.resolve()
  }

  #onLines(lines: AgentLine[]): void {
    const first = lines[0]?.seq ?? 0
    const had = this.#listener.lastLine()
    // A broken connection may have lost lines: ask the machine to resend them. If they are still missing, they are
    // lost.
    if (first > had + 1 && this.#missing !== first) {
      this.#missing = first
      return this.tell('resend', { seq: had })
    }
    this.tell('logged', { seq: this.#listener.onLines(lines.filter(({ seq }) => seq > had)) })
  }

  #end(): void {
    this.#greeted.reject(gone())
    for (const answer of this.#answers.values()) answer.reject(gone())
    for (const session of this.#sessions.values()) session.onLost()
    this.#sessions.clear()
    this.#closed.resolve()
  }
}

/** Converts the agent's refusal into an error for the tenant. */
export function asMachineFault(error: unknown, mountPath = ''): unknown {
  if (!(error instanceof AgentFault)) return error
  if (error.code === 'busy') return new DiskInUse(mountPath, error)
  return new EngineRefused(`The machine could not do it: ${error.message}`, error)
}

/** Null for a partial line of an earlier connection, and for anything that our agent does not send. */
function parse(line: string): AgentMessage | null {
  try {
    return AgentMessage.safeParse(JSON.parse(line)).data ?? null
  } catch {
    return null
  }
}

const gone = () => new EngineUnavailable('The machine disconnected')
const silent = () => new EngineUnavailable('The machine does not answer')

async function inTime<T>(promise: Promise<T>, ms: number): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(silent()), ms)
  try {
    return await Promise.race([promise, late.promise])
  } finally {
    clearTimeout(timer)
  }
}
