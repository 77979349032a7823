import type { Socket } from 'node:net'
import { EngineUnavailable } from '../errors.ts'
import { connectUnix, linesOf } from './unix-sockets.ts'

// A monitor serves one client at a time. A second one gets no greeting until the first has disconnected.
const greetingWithinMs = 5_000
const answerWithinMs = 30_000

/** `{"class": "GenericError", "desc": "…"}`: QEMU understood the command and refused it. */
export class QmpError extends Error {
  override readonly name = 'QmpError'
  readonly kind: string
  constructor(command: string, { class: kind, desc }: { class: string; desc: string }) {
    super(`${command}: ${desc}`)
    this.kind = kind
  }
}

export interface QmpEvent {
  event: string
  data: Record<string, unknown>
}

type Message =
  | { QMP: unknown }
  | ({ id: number } & ({ return: unknown } | { error: { class: string; desc: string } }))
  | QmpEvent

/** A connection to the monitor of QEMU or of its storage daemon, over a unix socket. */
export class Qmp {
  /** Rejects when the other side closes. For callers that wait for an event. */
  readonly closed: Promise<never>
  readonly #closed = Promise.withResolvers<never>()
  readonly #socket: Socket
  readonly #answers = new Map<number, PromiseWithResolvers<unknown>>()
  readonly #greeting = Promise.withResolvers<unknown>()
  readonly #listeners = new Set<(event: QmpEvent) => void>()
  #last = 0

  private constructor(socket: Socket) {
    this.#socket = socket
    this.closed = this.#closed.promise
    // The promises may reject before anything awaits them.
    for (const promise of [this.closed, this.#greeting.promise]) promise.catch(() => {})
    socket.on('close', () => this.#end())
    linesOf(socket, (line) => this.#read(line))
  }

  /** Throws EngineUnavailable if nothing listens, or if there is no greeting in time. */
  static async connect(path: string): Promise<Qmp> {
    const socket = await connectUnix(path).catch((error: unknown) => {
      throw new EngineUnavailable('The QMP monitor does not exist', error)
    })
    const qmp = new Qmp(socket)
    try {
      await inTime(qmp.#greeting.promise, greetingWithinMs, 'greeting')
      await qmp.execute('qmp_capabilities')
      return qmp
    } catch (error) {
      qmp.close()
      throw error
    }
  }

  /** Returns QEMU's result. Throws QmpError, EngineUnavailable. */
  async execute(command: string, args: Record<string, unknown> = {}): Promise<unknown> {
    if (this.#socket.destroyed) throw gone()
    const id = ++this.#last
    const answer = Promise.withResolvers<unknown>()
    this.#answers.set(id, answer)
    this.#socket.write(`${JSON.stringify({ execute: command, arguments: args, id })}\n`)
    try {
      return await inTime(answer.promise, answerWithinMs, command)
    } catch (error) {
      throw error instanceof Refusal ? new QmpError(command, error.error) : error
    } finally {
      this.#answers.delete(id)
    }
  }

  /** Calls back at each event until the returned function is called. Earlier events are not delivered. */
  onEvent(listener: (event: QmpEvent) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  close(): void {
    this.#socket.destroy()
  }

  /** The last line of a killed process may be incomplete. */
  #read(line: string): void {
    let message: Message
    try {
      message = JSON.parse(line) as Message
    } catch {
      return
    }
    this.#take(message)
  }

  #take(message: Message): void {
    if ('QMP' in message) return this.#greeting.resolve(undefined)
    if ('event' in message) return this.#listeners.forEach((listener) => listener(message))
    const answer = this.#answers.get(message.id)
    if ('error' in message) answer?.reject(new Refusal(message.error))
    else answer?.resolve(message.return)
  }

  #end(): void {
    this.#closed.reject(gone())
    this.#greeting.reject(gone())
    for (const answer of this.#answers.values()) answer.reject(gone())
  }
}

/** Carries an error to the call that knows the command. */
class Refusal extends Error {
  readonly error: { class: string; desc: string }
  constructor(error: { class: string; desc: string }) {
    super(error.desc)
    this.error = error
  }
}

const gone = () => new EngineUnavailable('The QMP monitor disconnected')

async function inTime<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => late.reject(new EngineUnavailable(`The QMP monitor does not answer: ${what}`)),
    ms,
  )
  try {
    return await Promise.race([promise, late.promise])
  } finally {
    clearTimeout(timer)
  }
}
