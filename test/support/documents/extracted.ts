import type { DocumentChunk } from '../../../drivers/documents.ts'
import { chunksOf } from '../../../drivers/documents/chunks.ts'
import { csvPieces } from '../../../drivers/documents/csv.ts'
import { readPdf } from '../../../drivers/documents/pdf.ts'
import type { Piece, Pieces } from '../../../drivers/documents/pieces.ts'
import { type Text, pdfOf, type PdfOptions } from './pdf.ts'
import { tokenizer } from './tokenizer.ts'

// Pieces and chunks in the test's own process.

export async function listOf<T>(items: Iterable<T> | AsyncIterable<T>): Promise<T[]> {
  const list: T[] = []
  for await (const item of items) list.push(item)
  return list
}

export const chunked = (pieces: Pieces, tokens = 220, chunks = 50_000): Promise<DocumentChunk[]> =>
  listOf(chunksOf(pieces, tokenizer, { tokens, chunks }))

export async function* bytesOf(...parts: (string | Uint8Array)[]): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield Buffer.from(part)
}

export const csvOf = (...parts: (string | Uint8Array)[]): Promise<Piece[]> =>
  listOf(csvPieces(bytesOf(...parts)))

export async function pdfPiecesOf(pages: Text[][], options: PdfOptions = {}): Promise<Piece[]> {
  const { pieces } = await readPdf(new Uint8Array(pdfOf(pages, options)), 1_000)
  return [...pieces]
}

const vocabulary =
  'river stone bridge lantern winter harbour copper signal meadow engine thunder velvet orchard compass'.split(
    ' ',
  )

/** Words that are the same for the same number. */
export function wordsOf(seed: number, count: number): string {
  let state = seed * 7919 + 17
  return Array.from({ length: count }, () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return vocabulary[(state >> 8) % vocabulary.length]
  }).join(' ')
}

export const sentenceOf = (seed: number, words = 8): string => {
  const text = `${wordsOf(seed, words)} number ${seed}.`
  return (text[0] as string).toUpperCase() + text.slice(1)
}
