import { once } from 'node:events'
import { setPriority } from 'node:os'
import { Worker } from 'node:worker_threads'
import type { DocumentChunk, Tokenizer } from '../documents.ts'
import { DocumentRefused } from '../document-errors.ts'
import { chunksOf } from './chunks.ts'
import { csvPieces } from './csv.ts'
import { isTooLarge, readable, unreadable } from './failures.ts'
import { jsonPieces } from './json.ts'
import { markdownPieces } from './markdown.ts'
import type { Pieces } from './pieces.ts'
import { type Order, over, type Report, type Watch } from './protocol.ts'
import { textPieces } from './text.ts'

// The process that reads one document from its input, and ends. The work is done by the main thread: Node's permissions do not
// hold for others.

const chunksPerReport = 200
/** Documents wait rather than requests and heartbeats. */
const niceness = 10

const report = (what: Report): Promise<void> =>
  new Promise((resolve) => process.send?.(what, undefined, undefined, () => resolve()))

async function read({ type, tokenizer, tokensPerChunk, bounds }: Order): Promise<Report> {
  const counter = await load(tokenizer)
  const { pages, pieces } = await piecesOf({ type, bounds }, process.stdin)
  const limits = { tokens: tokensPerChunk, chunks: bounds.chunks }
  let some: DocumentChunk[] = []
  let isChunking = false
  for await (const chunk of chunksOf(readable(pieces), counter, limits)) {
    if (!isChunking) await report({ stage: 'chunking' })
    isChunking = true
    some.push(chunk)
    if (some.length < chunksPerReport) continue
    await report({ chunks: some })
    some = []
  }
  await report({ chunks: some })
  return { done: { pages } }
}

async function load({ module, settings }: Order['tokenizer']): Promise<Tokenizer> {
  const { default: make } = (await import(module)) as {
    default: (settings: unknown) => Tokenizer | Promise<Tokenizer>
  }
  return make(settings)
}

async function piecesOf(
  { type, bounds }: Pick<Order, 'type' | 'bounds'>,
  input: AsyncIterable<Uint8Array>,
): Promise<{ pages: number | null; pieces: Pieces }> {
  if (type === 'csv') return { pages: null, pieces: csvPieces(input) }
  const bytes = await allOf(input)
  if (type === 'json') return { pages: null, pieces: jsonPieces(bytes, bounds.depth) }
  if (type === 'md') return { pages: null, pieces: markdownPieces(bytes) }
  if (type === 'txt') return { pages: null, pieces: textPieces(bytes) }
  // It takes a tenth of a second to load, and others do not need it.
  const { readPdf } = await import('./pdf.ts')
  return readPdf(bytes, bounds.pages).catch(unreadable)
}

/** Not a Buffer: pdf.js refuses them. */
async function allOf(input: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of input) {
    parts.push(part)
    length += part.length
  }
  const all = new Uint8Array(length)
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}

function failureOf(error: unknown): Report {
  if (isTooLarge(error)) return { exceeded: 'memory' }
  if (!(error instanceof DocumentRefused)) return { failed: stackOf(error) }
  const { fault, message, stage, cause } = error
  return { refused: { fault, message, stage, cause: cause === undefined ? null : stackOf(cause) } }
}

const stackOf = (error: unknown): string =>
  error instanceof Error ? (error.stack ?? error.message) : String(error)

process.once('message', (order: Order) => {
  void (async () => {
    const { memoryMib, cpuMs } = order.bounds
    const watch: Watch = { memoryMib, cpuMs, parent: order.parent, over }
    await once(new Worker(new URL('./watcher.ts', import.meta.url), { workerData: watch }), 'online')
    await report(await read(order).catch(failureOf))
    process.exit()
  })()
})
setPriority(niceness)
