import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import type { EmbedderFacts } from '../embedders.ts'
import { EmbedderUnavailable } from '../errors.ts'

// The folder of an embedder: `model.onnx` as exporters for sentence transformers make it, its `tokenizer.json`, and
// `embedder.json`, which says what neither of the two does.

const Description = z.strictObject({
  name: z.string().regex(/^[\w.-]{1,100}$/),
  license: z.string(),
  dimensions: z.number().int().min(1).max(8_192),
  /** With the tokens around a text. */
  most_tokens: z.number().int().min(3).max(32_768),
  /** How the vectors of tokens become one: their mean, or the first. */
  pooling: z.enum(['mean', 'first']),
})

/** What its files are, for those who open them. */
export interface EmbedderFiles extends EmbedderFacts {
  folder: string
  pooling: z.output<typeof Description>['pooling']
}

export const modelFile = (folder: string): string => join(folder, 'model.onnx')
export const tokenizerFile = (folder: string): string => join(folder, 'tokenizer.json')

/**
 * Reads an embedder's files, and hashes what decides about its vectors: model, tokenizer and pooling. Rejects with
 * EmbedderUnavailable.
 */
export async function readEmbedder(folder: string): Promise<EmbedderFiles> {
  try {
    const described: unknown = JSON.parse(await readFile(join(folder, 'embedder.json'), 'utf8'))
    const { license: _, ...description } = Description.parse(described)
    const hash = createHash('sha256').update(description.pooling)
    for (const file of [modelFile(folder), tokenizerFile(folder)]) hash.update(await hashOf(file))
    const digest = hash.digest('hex')
    return { ...description, folder, hash: digest, id: `${description.name}@${digest.slice(0, 16)}` }
  } catch (cause) {
    throw new EmbedderUnavailable(`The files of an embedder cannot be read: ${folder}`, { cause })
  }
}

async function hashOf(file: string): Promise<Buffer> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(file), hash)
  return hash.digest()
}
