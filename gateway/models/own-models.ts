import type { Logger } from '../../lib/log.ts'
import type { Embedder } from '../../drivers/embedders.ts'
import { openEmbedder } from '../../drivers/onnx/embedder.ts'
import { readEmbedder } from '../../drivers/onnx/files.ts'

/** The models that run here, for which no connector is needed. */
export interface OwnModels {
  embedders: readonly Embedder[]
  /** By its name (the first of that name), or by its id, which nothing but this embedder has. */
  find(model: string): Embedder | null
  close(): Promise<void>
}

/**
 * The embedders in these folders, each on so many threads. A model takes memory from its first call on. A folder that
 * cannot be read is logged: the gateway serves all other models.
 */
export async function openOwnModels(folders: string[], threads: number, log: Logger): Promise<OwnModels> {
  const embedders: Embedder[] = []
  for (const folder of folders) {
    try {
      embedders.push(openEmbedder(await readEmbedder(folder), threads))
    } catch (error) {
      log.warn({ err: error, folder }, 'an embedder cannot be used')
    }
  }
  return {
    embedders,
    find: (model) => embedders.find(({ facts }) => facts.id === model || facts.name === model) ?? null,
    async close() {
      await Promise.all(embedders.map((one) => one.close()))
    },
  }
}
