import { parentPort, workerData } from 'node:worker_threads'
import type { EmbedderFiles } from './files.ts'
import { openModel } from './model.ts'
import { counted, leastTokens, openTokens } from './tokens.ts'

// A thread that embeds: the runtime computes in the thread that calls it, and tokens of long texts take time, too.

export type Answer =
  | { vectors: Float32Array<ArrayBuffer>; tokens: number }
  /** `index`: among the texts of the piece. */
  | { tooLong: { index: number; tokens: number | null } }
  | { failed: string }

const files = workerData as EmbedderFiles
const tokens = openTokens(files.folder)
const model = await openModel(files)

async function embed(texts: string[]): Promise<Answer> {
  const ids: number[][] = []
  let sum = 0
  for (const [index, text] of texts.entries()) {
    if (leastTokens(text) > files.most_tokens) return { tooLong: { index, tokens: null } }
    const own = tokens.idsOf(text)
    const count = counted(text, own)
    if (count > files.most_tokens) return { tooLong: { index, tokens: count } }
    ids.push(own)
    sum += count
  }
  const vectors = (await model(ids)) as Float32Array<ArrayBuffer>
  return { vectors, tokens: sum }
}

async function answer(texts: string[]): Promise<void> {
  const answered = await embed(texts).catch((error: unknown): Answer => ({ failed: String(error) }))
  parentPort?.postMessage(answered, 'vectors' in answered ? [answered.vectors.buffer] : [])
}
parentPort?.on('message', (texts: string[]) => void answer(texts))
