import { type NativeConnection, Worker } from '@temporalio/worker'
import { failures } from '../activities/failures.ts'
import { heartbeats } from '../activities/heartbeats.ts'
import { measured } from '../activities/measured.ts'
import { type Cut, makeRagDocumentActivities } from '../activities/retrieval/documents.ts'
import { makeRagEmbedderActivities } from '../activities/retrieval/embedders.ts'
import type { Settings } from '../config.ts'
import { makeDocumentExtractor } from '../drivers/documents/extractor.ts'
import type { EmbedderFacts } from '../drivers/embedders.ts'
import { tokenizerOf } from '../drivers/onnx/document-tokenizer.ts'
import { readEmbedder } from '../drivers/onnx/files.ts'
import type { Logger } from '../lib/log.ts'
import { documentsQueue } from '../lib/operation-workflows.ts'
import { dataConverter, platformCodec } from '../lib/temporal.ts'
import type { CollectionEmbedder } from '../models/retrieval/embedders.ts'
import type { Embeddings } from '../models/retrieval/embeddings.ts'

/**
 * The part of a platform worker that takes documents into the index. It has few places, so that thousands of documents
 * hold up neither its other work nor other processes.
 */
export async function makeDocumentsWorker(
  connection: NativeConnection,
  embeddings: Embeddings,
  settings: Settings<'worker'>,
  log: Logger,
): Promise<Worker> {
  const cuts = await cutsOf(settings.KEELSON_EMBEDDERS, log)
  // A provider's tokenizer is not known here. Most of its models read 512 tokens or more, so that the usual chunk by the first
  // tokenizer leaves room for one that counts twice as many.
  const [cutForOthers = null] = cuts.values()
  const cutFor = ({ hash, connector_id }: CollectionEmbedder): Cut | null =>
    connector_id === undefined ? (cuts.get(hash) ?? null) : cutForOthers
  return Worker.create({
    connection,
    namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
    taskQueue: documentsQueue,
    activities: {
      ...makeRagDocumentActivities({ extractor: makeDocumentExtractor(), embeddings, cutFor }),
      ...makeRagEmbedderActivities({ embeddings }),
    },
    maxConcurrentActivityTaskExecutions: settings.KEELSON_DOCUMENTS_AT_ONCE,
    dataConverter: dataConverter(platformCodec(settings)),
    interceptors: { activity: [measured, heartbeats, failures] },
    shutdownGraceTime: '5 s',
  })
}

/** What a chunk leaves free of a model's tokens: for those around a text, and for a tokenizer that counts a little otherwise. */
const roomOfModel = 36
/** Longer texts have vectors that say less. */
const usualTokens = 220
const tokensPerChunk = ({ most_tokens }: Pick<EmbedderFacts, 'most_tokens'>): number =>
  Math.max(1, Math.min(usualTokens, most_tokens - roomOfModel))

/** By the embedders' hashes. A folder that cannot be read is logged: collections of other embedders go on. */
async function cutsOf(folders: string[], log: Logger): Promise<Map<EmbedderFacts['hash'], Cut>> {
  const cuts = new Map<string, Cut>()
  for (const folder of folders) {
    try {
      const embedder = await readEmbedder(folder)
      cuts.set(embedder.hash, { tokenizer: tokenizerOf(folder), tokensPerChunk: tokensPerChunk(embedder) })
    } catch (error) {
      log.warn({ err: error, folder }, 'the files of an embedder cannot be used for documents')
    }
  }
  return cuts
}
