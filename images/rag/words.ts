import { stopWords } from './stop-words.ts'
import { limits } from './store.ts'

// Word characters of FTS5's tokenizer unicode61, with the marks that it takes off.
const word = /[\p{L}\p{N}\p{M}\p{Co}]+/gu

/** The distinct words of a user's text. None has a character of FTS5's query language. */
export const wordsOf = (text: string): string[] => {
  const words = new Set<string>()
  for (const [found] of text.matchAll(word)) {
    words.add(found.toLowerCase())
    if (words.size === limits.queryWords) break
  }
  return [...words]
}

/** Those of the words that say something; all of them, if none does. */
export function tellingWords(words: string[]): string[] {
  const telling = words.filter((one) => !stopWords.has(one))
  return telling.length ? telling : words
}

/** A query of FTS5 for chunks with any of the words. Quoted, so that AND, OR, NOT and NEAR are words as well. */
export const matchAny = (words: string[]): string => words.map((one) => `"${one}"`).join(' OR ')
