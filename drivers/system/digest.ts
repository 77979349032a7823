import { createHash } from 'node:crypto'

/** The first digits, in hex, of a text's SHA-256: for names that follow from content. */
export const digest = (text: string, digits: number): string =>
  createHash('sha256').update(text).digest('hex').slice(0, digits)
