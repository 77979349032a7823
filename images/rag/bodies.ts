import type { IncomingMessage } from 'node:http'
import { StoreError } from './errors.ts'

/** How many of the largest bodies fit into memory at once. */
const mostAtOnce = 4

/** Reads bodies, each of at most `mostBytes`, and of not too many at once. */
export class Bodies {
  readonly #mostBytes: number
  readonly #held = new Map<IncomingMessage, number>()

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes
  }

  /** The JSON of the body. Throws `too_large`, `invalid_json`, and `unavailable` if too many others are read. */
  async read(request: IncomingMessage): Promise<unknown> {
    if (Number(request.headers['content-length'] ?? 0) > this.#mostBytes) throw this.#tooLarge()
    const pieces: Buffer[] = []
    let bytes = 0
    try {
      // A refusal must not close the connection, on which its answer goes out.
      for await (const piece of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
        bytes += piece.length
        if (bytes > this.#mostBytes) throw this.#tooLarge()
        this.#held.set(request, bytes)
        if (this.#sum() > mostAtOnce * this.#mostBytes)
          throw new StoreError('unavailable', 'The store is taking other large documents')
        pieces.push(piece)
      }
    } catch (error) {
      if (error instanceof StoreError) throw error
      throw new StoreError('invalid_json', 'The body ended early', { cause: error })
    }
    try {
      return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(pieces)))
    } catch {
      throw new StoreError('invalid_json', 'The body has to be JSON in UTF-8')
    }
  }

  /** Call when the request is answered. Lets a caller that is still sending come to its answer, within bounds. */
  release(request: IncomingMessage): void {
    this.#held.delete(request)
    if (request.complete || request.destroyed) return
    let left = this.#mostBytes
    request.on('data', (piece: Buffer) => {
      left -= piece.length
      if (left < 0) request.destroy()
    })
    request.resume()
  }

  #tooLarge(): StoreError {
    return new StoreError('too_large', `A body has at most ${this.#mostBytes} bytes`)
  }

  #sum(): number {
    return [...this.#held.values()].reduce((sum, bytes) => sum + bytes, 0)
  }
}
