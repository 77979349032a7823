import { makeQueue, type Queue } from '../../lib/queue.ts'
import type { Embedded, Embedder, EmbedderFacts, Embedding } from '../embedders.ts'
import { EmbedderUnavailable, TextTooLong } from '../errors.ts'
import type { EmbedderFiles } from './files.ts'
import { piecesOf } from './pieces.ts'
import { EmbedderThread } from './thread.ts'

/**
 * Embeds on at most so many threads, each with the model in its memory. A thread starts when it is needed first, and a new
 * one takes the place of one that has ended.
 */
export function openEmbedder(files: EmbedderFiles, threads = 1): Embedder {
  const { folder: _, pooling: __, ...facts } = files
  return new OnnxEmbedder(files, facts, threads)
}

interface Turn {
  signal: AbortSignal
  party: string
  onTokens: Embedding['onTokens'] | undefined
}

class OnnxEmbedder implements Embedder {
  readonly facts: EmbedderFacts
  readonly #files: EmbedderFiles
  readonly #threads: number
  readonly #queue: Queue
  /** Of each party, its calls of many pieces, which go one by one: a question waits for one of them alone. */
  readonly #long = new Map<string, { queue: Queue; calls: number }>()
  #idle: EmbedderThread[] = []
  readonly #all = new Set<EmbedderThread>()
  readonly #closed = new AbortController()

  constructor(files: EmbedderFiles, facts: EmbedderFacts, threads: number) {
    this.facts = facts
    this.#files = files
    this.#threads = threads
    this.#queue = makeQueue(threads)
  }

  async embed(texts: string[], { signal, party = '', onTokens }: Embedding = {}): Promise<Embedded> {
    const pieces = piecesOf(texts)
    const ends = AbortSignal.any([this.#closed.signal, ...(signal ? [signal] : [])])
    const work = () => this.#embedPieces(pieces, texts, { signal: ends, party, onTokens })
    return pieces.length > 1 ? this.#afterLongOnes(party, ends, work) : work()
  }

  async #afterLongOnes<T>(party: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const its = this.#long.get(party) ?? { queue: makeQueue(), calls: 0 }
    this.#long.set(party, its)
    its.calls++
    try {
      return await its.queue(work, signal)
    } finally {
      if (--its.calls === 0) this.#long.delete(party)
    }
  }

  async #embedPieces(
    pieces: number[][],
    texts: string[],
    { signal, party, onTokens }: Turn,
  ): Promise<Embedded> {
    const failed = new AbortController()
    const ends = AbortSignal.any([failed.signal, signal])
    const vectors: Float32Array[] = Array.from({ length: texts.length })
    const left = pieces.values()
    let tokens = 0
    // A call has only as many pieces in the queue as threads could take: a question of its party waits for no more.
    const takePieces = async (): Promise<void> => {
      for (const piece of left) {
        const took = await this.#queue(() => this.#embedPiece(piece, texts, vectors), ends, party)
        tokens += took
        onTokens?.(took)
      }
    }
    try {
      await Promise.all(Array.from({ length: this.#threads }, takePieces))
    } catch (error) {
      failed.abort(error)
      throw error
    }
    return { vectors, tokens }
  }

  async close(): Promise<void> {
    this.#closed.abort(new EmbedderUnavailable('The embedder was closed'))
    await Promise.all([...this.#all].map((thread) => thread.close()))
  }

  /** Puts the vectors in their places, and returns the tokens. */
  async #embedPiece(piece: number[], texts: string[], vectors: Float32Array[]): Promise<number> {
    const thread = this.#idle.pop() ?? this.#start()
    try {
      const answer = await thread.run(piece.map((index) => texts[index] as string))
      if ('failed' in answer) throw new EmbedderUnavailable(`The embedder failed: ${answer.failed}`)
      const { dimensions, most_tokens } = this.facts
      if ('tooLong' in answer)
        throw new TextTooLong(piece[answer.tooLong.index] as number, answer.tooLong.tokens, most_tokens)
      for (const [row, index] of piece.entries())
        vectors[index] = answer.vectors.slice(row * dimensions, (row + 1) * dimensions)
      return answer.tokens
    } finally {
      if (!thread.hasEnded) this.#idle.push(thread)
    }
  }

  #start(): EmbedderThread {
    const thread: EmbedderThread = new EmbedderThread(this.#files, () => {
      this.#all.delete(thread)
      this.#idle = this.#idle.filter((one) => one !== thread)
    })
    this.#all.add(thread)
    return thread
  }
}
