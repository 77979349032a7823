import type { Tokenizer } from '../../../drivers/documents.ts'

// A tokenizer without a vocabulary, which cuts words much as WordPiece does: pieces of four letters, digits and signs one by one,
// and one token for a word that is too long for it.

const tokenOf = /\p{L}{1,4}|\p{N}|[^\s\p{L}\p{N}]/gu

export default function makeTokenizer(): Tokenizer {
  return {
    countTokens: (text) =>
      text
        .split(/\s+/u)
        .reduce((sum, word) => sum + (word.length > 100 ? 1 : (word.match(tokenOf)?.length ?? 0)), 0),
  }
}

export const tokenizer = makeTokenizer()
export const tokenizerModule = { module: import.meta.url, settings: null, reads: [] as string[] }
