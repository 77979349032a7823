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
  return { idsOf, countTokens: (text) => counted(text, idsOf(text)) }
}

const charactersOfToken = 100

/** As many as a text counts at least: a megabyte of base64 is one unknown word to a tokenizer, and is nothing to embed. */
export const leastTokens = (text: string): number => Math.ceil(text.length / charactersOfToken)

export const counted = (text: string, ids: number[]): number => Math.max(ids.length, leastTokens(text))
