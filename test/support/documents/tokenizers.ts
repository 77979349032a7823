import { readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Tokenizer, TokenizerModule } from '../../../drivers/documents.ts'

// Tokenizers that do what a document might make its process do. `settings` says what.

const deeds: Record<string, (path: string) => unknown> = {
  /** Never ends. */
  spin: () => {
    for (;;);
  },
  /** Objects without end. */
  hoard: () => {
    const all: object[] = []
    for (;;) all.push({ all: all.length })
  },
  /** Buffers without end, which are outside of V8's limit. */
  fill: () => {
    const all: Buffer[] = []
    for (;;) all.push(Buffer.alloc(4 * 1024 * 1024, 1))
  },
  exit: () => process.exit(3),
  throw: () => {
    throw new Error('the tokenizer has failed')
  },
  read: (path) => readFileSync(path),
  write: () => writeFileSync(join(tmpdir(), 'written'), ''),
  start: () => process.getBuiltinModule('node:child_process').execFileSync('true'),
  environment: () => {
    if (Object.keys(process.env).length > 0) throw new Error(Object.keys(process.env).join())
  },
}

/** `at`: the word at which it happens; any if it is empty. */
export default function makeTokenizer({
  deed,
  path,
  at,
}: {
  deed: string
  path: string
  at: string
}): Tokenizer {
  return {
    countTokens(text) {
      if (!text.includes(at)) return text.split(/\s+/u).length
      deeds[deed]?.(path)
      return text.split(/\s+/u).length
    },
  }
}

export const tokenizerThat = (
  deed: string,
  { path = '', at = '', reads = [] }: { path?: string; at?: string; reads?: string[] } = {},
): TokenizerModule => ({ module: import.meta.url, settings: { deed, path, at }, reads })
