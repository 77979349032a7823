import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { EngineUnavailable } from '../errors.ts'
import { connectUnix, pace } from '../system/unix-sockets.ts'

const keptBytes = 64 * 1024
// A reader slower than the machine is disconnected, so it cannot fill the host's memory.
const mostUnread = 1024 * 1024

// Far more than a serial line carries.
const bytesPerSec = 4 * 1024 ** 2
/** What a line costs beside its bytes: its entry in a VM's log. */
const bytesPerLine = 128

function costOf(data: Buffer): number {
  let lines = 0
  for (let at = data.indexOf(0x0a); at >= 0; at = data.indexOf(0x0a, at + 1)) lines++
  return data.length + lines * bytesPerLine
}

/** A machine's serial console. QEMU serves one connection; this shares it among all viewers. */
export class MachineConsole {
  readonly #socket: Socket
  readonly #viewers = new Set<Duplex>()
  #kept: Buffer = Buffer.alloc(0)

  private constructor(socket: Socket, onData: (data: Buffer) => void) {
    this.#socket = socket
    socket.on('data', (data: Buffer) => {
      this.#kept = Buffer.concat([this.#kept, data]).subarray(-keptBytes)
      onData(data)
      for (const viewer of this.#viewers) {
        viewer.push(data)
        if (viewer.readableLength > mostUnread) viewer.destroy()
      }
    })
    pace(socket, bytesPerSec, costOf)
    socket.on('close', () => {
      for (const viewer of this.#viewers) viewer.push(null)
    })
  }

  static async connect(path: string, onData: (data: Buffer) => void = () => {}): Promise<MachineConsole> {
    const socket = await connectUnix(path).catch((error: unknown) => {
      throw new EngineUnavailable('The machine is not there', error)
    })
    return new MachineConsole(socket, onData)
  }

  /** The last output, as text. */
  tail(chars: number): string {
    return this.#kept.toString('utf8').slice(-chars).trim()
  }

  view(): Duplex {
    const socket = this.#socket
    const viewers = this.#viewers
    const viewer: Duplex = new Duplex({
      read() {},
      write(data: Buffer, _encoding, done) {
        if (socket.destroyed) return done()
        socket.write(data, () => done())
      },
      destroy(error, done) {
        viewers.delete(viewer)
        done(error)
      },
    })
    viewers.add(viewer)
    if (this.#kept.length > 0) viewer.push(this.#kept)
    return viewer
  }

  close(): void {
    this.#socket.destroy()
  }
}
