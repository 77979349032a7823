import type { DocumentChunk, Locator } from '../../drivers/documents.ts'

// What the store keeps with a chunk, to say where it is and which of its text is repeated.

interface Kept {
  locator: Locator
  headings: string[]
  /** UTF-16 units at the beginning of the text: headings and header. */
  prefix: number
  /** Those behind it that are the end of the chunk before. */
  overlap: number
}

/** What the store is to keep. */
export const kept = ({ locator, headings, prefix, overlap }: DocumentChunk): Record<string, unknown> => ({
  locator,
  headings,
  prefix,
  overlap,
})

export interface Place {
  /** The chunk's own text. */
  text: string
  /** The headings above it and the header of its table, as they are embedded with it. */
  context: string
  headings: string[]
  /** Null: a tenant has written the chunk into the store itself. */
  locator: Locator | null
}

/** A chunk of the store as a hit shows it. */
export function placeIn({
  text,
  locator: stored,
}: {
  text: string
  locator: Record<string, unknown>
}): Place {
  const { locator = null, headings = [], prefix = 0, overlap = 0 } = stored as Partial<Kept>
  return {
    text: text.slice(prefix + overlap).trim(),
    context: text.slice(0, prefix).trim(),
    headings,
    locator,
  }
}
