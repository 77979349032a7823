import { tellingWords, wordsOf } from '../words.ts'

const word = /[\p{L}\p{N}\p{Co}]+/gu

/** The words of a text, small and without marks. PostgreSQL's parser would make links, or numbers with signs, of some texts. */
export const plainWords = (text: string): string[] => withoutMarks(text).match(word) ?? []

/** The distinct words of a user's text that a search looks for. */
export const queryWords = (text: string): string[] => tellingWords(wordsOf(withoutMarks(text)))

const withoutMarks = (text: string): string => text.normalize('NFKD').replaceAll(/\p{M}/gu, '').toLowerCase()
