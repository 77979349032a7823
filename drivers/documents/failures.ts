import { DocumentRefused } from '../document-errors.ts'
import type { Piece, Pieces } from './pieces.ts'

// What a parser throws that does not know what is the matter with the document. It would do so at each attempt.

/** The pieces, with failures of their parser as refusals. */
export async function* readable(pieces: Pieces): AsyncGenerator<Piece> {
  try {
    yield* pieces
  } catch (error) {
    unreadable(error)
  }
}

/** Throws the refusal for a parser's failure. */
export function unreadable(error: unknown): never {
  if (error instanceof DocumentRefused || isTooLarge(error)) throw error
  throw new DocumentRefused('broken', 'The document cannot be read: the program that reads it fails on it', {
    cause: error,
  })
}

/** A text or an array that is longer than any can be: memory was exceeded. */
export const isTooLarge = (error: unknown): boolean =>
  error instanceof RangeError &&
  /allocation failed|invalid (string|array|typed array) length/i.test(error.message)
