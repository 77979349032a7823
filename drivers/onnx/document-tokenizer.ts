import { resolve } from 'node:path'
import type { Tokenizer, TokenizerModule } from '../documents.ts'
import { tokenizerFile } from './files.ts'
import { leastTokens, openTokens } from './tokens.ts'

/** An embedder's tokenizer, for the process that reads a document. */
export function tokenizerOf(embedderFolder: string): TokenizerModule {
  const folder = resolve(embedderFolder) // the process has another folder of its own
  return { module: import.meta.url, settings: { folder }, reads: [tokenizerFile(folder)] }
}

export default function makeTokenizer({ folder }: { folder: string }): Tokenizer {
  const tokens = openTokens(folder)
  const around = tokens.idsOf('').length
  return { countTokens: (text) => Math.max(tokens.idsOf(text).length - around, leastTokens(text)) }
}
