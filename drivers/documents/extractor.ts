import { type ChildProcess, fork } from 'node:child_process'
import { realpathSync } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import type {
  DocumentChunk,
  DocumentExtractor,
  DocumentStage,
  ExtractedDocument,
  ExtractionBounds,
  ExtractionRequest,
} from '../documents.ts'
import { makeQueue } from '../../lib/queue.ts'
import {
  DocumentRefused,
  type ExtractionBound,
  ExtractionEnded,
  ExtractionExceeded,
} from '../document-errors.ts'
import { Clock } from './clock.ts'
import { type Order, over, type Report } from './protocol.ts'

// Reads documents, each in a process of its own, whose end does not concern the caller. It has no environment, and Node lets it
// neither write a file, nor start a program, nor read other files than the project's.

/** Embedders of 256 tokens add two of their own, and leave room for a tokenizer that counts a little otherwise. */
const tokensPerChunk = 220

export const extractionBounds: ExtractionBounds = {
  cpuMs: 120_000,
  // A busy machine may give it a fifth of a processor.
  withinMs: 600_000,
  memoryMib: 1024,
  bytes: 256 * 1024 * 1024,
  // What a store takes as one document.
  chunks: 50_000,
  pages: 10_000,
  depth: 200,
}

/** Of the memory, what V8's objects may take. Buffers are outside of it. */
const heapShare = 0.75

const project = fileURLToPath(new URL('../..', import.meta.url))
const program = fileURLToPath(new URL('./process.ts', import.meta.url))

/** Each extraction may take the memory of its bound. */
const usualAtOnce = 2

/** Reads at most `atOnce` documents at once. The others wait, and their bounds begin afterwards. */
export function makeDocumentExtractor({ atOnce = usualAtOnce } = {}): DocumentExtractor {
  const queue = makeQueue(atOnce)
  return { extract: (request) => queue(() => extract(request), request.signal, request.party) }
}

async function extract(request: ExtractionRequest): Promise<ExtractedDocument> {
  request.signal?.throwIfAborted()
  const bounds = { ...extractionBounds, ...request.bounds }
  checkSize(request.content, bounds)
  const { type, tokenizer } = request
  const order: Order = {
    type,
    tokenizer,
    tokensPerChunk: request.tokensPerChunk ?? tokensPerChunk,
    bounds,
    parent: process.pid,
  }
  const child = start(order)
  const extraction = new Extraction(child, bounds, request.signal)
  try {
    // What the content fails with is the caller's; what the process fails with is in its report.
    await Promise.race([extraction.ended, feed(child, request.content, { bounds, clock: extraction.clock })])
    return await extraction.ended
  } finally {
    child.kill('SIGKILL')
  }
}

function checkSize(content: ExtractionRequest['content'], bounds: ExtractionBounds): void {
  if (!(content instanceof Uint8Array)) return
  if (content.length === 0) throw new DocumentRefused('empty', 'The document is empty')
  if (content.length > bounds.bytes) throw tooLarge(bounds)
}

const tooLarge = ({ bytes }: ExtractionBounds): DocumentRefused =>
  new DocumentRefused('too_large', `The document is larger than ${Math.floor(bytes / 1024 / 1024)} MiB`)

function start(order: Order): ChildProcess {
  const child = fork(program, [], {
    execArgv: [
      `--max-old-space-size=${Math.floor(order.bounds.memoryMib * heapShare)}`,
      '--permission',
      // For watcher.ts. A thread has all permissions, so this is no wall against code that means to get out.
      '--allow-worker',
      ...readable(order).map((path) => `--allow-fs-read=${path}`),
    ],
    env: {},
    cwd: '/',
    serialization: 'advanced',
    stdio: ['pipe', 'ignore', 'ignore', 'ipc'],
  })
  // It may have ended already: the event `exit` tells.
  child.send(order, () => {})
  return child
}

const readable = ({ tokenizer }: Order): string[] => [
  `${project}drivers/`,
  `${project}package.json`,
  `${realpathSync(`${project}node_modules`)}/`,
  fileURLToPath(tokenizer.module),
  ...tokenizer.reads,
]

/** Gives the document to the process, which may end before it has all. Throws what the content throws. */
async function feed(
  child: ChildProcess,
  content: ExtractionRequest['content'],
  { bounds, clock }: { bounds: ExtractionBounds; clock: Clock },
): Promise<void> {
  if (!child.stdin) return
  let fault: { error: unknown } | null = null
  async function* checked(): AsyncGenerator<Uint8Array> {
    let bytes = 0
    try {
      clock.pause()
      for await (const some of content instanceof Uint8Array ? [content] : content) {
        clock.goOn()
        bytes += some.length
        if (bytes > bounds.bytes) throw tooLarge(bounds)
        yield some
        clock.pause()
      }
      clock.goOn()
    } catch (error) {
      fault = { error }
      throw error
    }
  }
  await pipeline(Readable.from(checked(), { objectMode: false }), child.stdin).catch(() => {})
  if (fault) throw (fault as { error: unknown }).error
}

/** What the process reports, until its end. */
class Extraction {
  readonly ended: Promise<ExtractedDocument>
  /** Of the bound of time. */
  readonly clock: Clock
  readonly #bounds: ExtractionBounds
  readonly #chunks: DocumentChunk[] = []
  #stage: DocumentStage = 'extracting'

  constructor(child: ChildProcess, bounds: ExtractionBounds, signal: AbortSignal | undefined) {
    this.#bounds = bounds
    const { promise, resolve, reject } = Promise.withResolvers<ExtractedDocument>()
    this.ended = promise
    promise.catch(() => {}) // the caller may be waiting for the content first
    const abort = (): void => reject(signal?.reason)
    signal?.addEventListener('abort', abort)
    this.clock = new Clock(bounds.withinMs, () => reject(this.#exceeded('time')))
    child.on('message', (report: Report) => {
      try {
        const result = this.#take(report)
        if (result) resolve(result)
      } catch (error) {
        reject(error)
      }
    })
    child.on('error', (error) => reject(new ExtractionEnded(this.#stage, error)))
    child.on('exit', (code, by) => reject(this.#endedBy(code, by)))
    const forget = (): void => {
      this.clock.stop()
      signal?.removeEventListener('abort', abort)
    }
    promise.then(forget, forget)
  }

  /** Null: the document is still being read. */
  #take(report: Report): ExtractedDocument | null {
    if ('stage' in report) this.#stage = report.stage
    else if ('chunks' in report) this.#chunks.push(...report.chunks)
    else if ('exceeded' in report) throw this.#exceeded(report.exceeded)
    else if ('failed' in report) throw new ExtractionEnded(this.#stage, new Error(report.failed))
    else if ('refused' in report) {
      const { fault, message, stage, cause } = report.refused
      throw new DocumentRefused(fault, message, {
        stage,
        cause: cause === null ? undefined : new Error(cause),
      })
    } else {
      const tokens = this.#chunks.reduce((sum, chunk) => sum + chunk.tokens, 0)
      return { chunks: this.#chunks, tokens, pages: report.done.pages }
    }
    return null
  }

  #endedBy(code: number | null, signal: NodeJS.Signals | null): Error {
    if (signal === over.cpu) return this.#exceeded('cpu')
    // V8 aborts the process that has used up its heap.
    if (signal === over.memory || signal === 'SIGABRT') return this.#exceeded('memory')
    return new ExtractionEnded(this.#stage, new Error(`the process ended with ${signal ?? code}`))
  }

  #exceeded(bound: ExtractionBound): ExtractionExceeded {
    const { cpuMs, withinMs, memoryMib } = this.#bounds
    return new ExtractionExceeded(
      bound,
      { cpu: cpuMs, time: withinMs, memory: memoryMib }[bound],
      this.#stage,
    )
  }
}
