import { join } from 'node:path'
import { type EmbedderFiles, readEmbedder } from '../../drivers/onnx/files.ts'
import { readLayout } from '../../script/lib/settings.ts'

/** Where script/bootstrap keeps the platform's own embedder. */
export const embedderFolder = join(readLayout().tools, 'embedder')

export const ownEmbedder = (): Promise<EmbedderFiles> => readEmbedder(embedderFolder)

/** Of vectors of length 1. */
export const cosine = (a: Float32Array | number[], b: Float32Array | number[]): number =>
  [...a].reduce((sum, value, at) => sum + value * (b[at] as number), 0)
