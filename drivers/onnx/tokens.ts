import { readFileSync } from 'node:fs'
import { Tokenizer } from '@huggingface/tokenizers'
import type { TokenCounter } from '../embedders.ts'
import { tokenizerFile } from './files.ts'

export interface Tokens extends TokenCounter {
  /** The model's input, with the tokens around a text. */
  idsOf(text: string): number[]
}

/** The tokenizer of an embedder, without its model: half a megabyte, read in some 50 ms. */
export function openTokens(folder: string): Tokens {
  const tokenizer = new Tokenizer(JSON.parse(readFileSync(tokenizerFile(folder), 'utf8')) as object, {})
  // The package neither cuts nor pads, whatever the file says.
  const idsOf = (text: string): number[] => tokenizer.encode(text).ids
  return { idsOf, countTokens: (text) => idsOf(text).length }
}
