import { Duplex } from 'node:stream'
import type { Agent } from './agent.ts'

// The agent's flow control: at most this many bytes may be unacknowledged.
const windowBytes = 128 * 1024
const partBytes = 16 * 1024
// Our agent keeps to the window. A sender that ignores it loses its session, so it cannot fill the host's memory.
const mostUnread = 1024 * 1024

/** The input and output of a command in a machine. */
export class SessionStream extends Duplex {
  protected readonly agent: Agent
  protected readonly id: string
  #unread = 0
  #room = windowBytes
  #waiting: (() => void) | null = null

  constructor(agent: Agent, id: string) {
    super({ allowHalfOpen: true, writableHighWaterMark: windowBytes })
    this.agent = agent
    this.id = id
  }

  deliver(data: Buffer): void {
    if (this.destroyed) return
    if (this.push(data)) this.agent.tell('ack', data.length, this.id)
    else this.#unread += data.length
    if (this.readableLength > mostUnread) this.destroy()
  }

  acknowledged(bytes: number): void {
    this.#room += bytes
    const waiting = this.#waiting
    this.#waiting = null
    waiting?.()
  }

  /** The command has ended. What is still written goes nowhere. */
  commandEnded(): void {
    this.acknowledged(Infinity)
    this.push(null)
  }

  override _read(): void {
    if (this.#unread > 0) this.agent.tell('ack', this.#unread, this.id)
    this.#unread = 0
  }

  override _write(data: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    const rest = data.subarray(partBytes)
    const send = (): void => {
      const part = data.subarray(0, partBytes)
      this.#room -= part.length
      this.agent.tell('in', part.toString('base64'), this.id)
      if (rest.length > 0) this._write(rest, 'binary', done)
      else done()
    }
    if (this.#room >= partBytes) send()
    else this.#waiting = () => this._write(data, 'binary', done)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.agent.tell('hangup', null, this.id)
    done(error)
  }
}
