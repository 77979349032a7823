import { durable } from '../durable.ts'
import { steps, store } from './steps.ts'

/** Has nothing to undo: an empty collection in the store goes away with the record, or when its name is used again. */
export const createRagCollection = durable(
  async ({ id, progress }) => {
    progress('making the collection in the store')
    await store.makeRagCollection(id)
    return { status: 'ready', in_store: true }
  },
  { onFailure: 'error' },
)

/**
 * Changes the embedder. The former one serves until the store has all vectors of the next one, including those of documents
 * that come meanwhile.
 */
export const updateRagCollection = durable(async ({ id, operation_id, progress, renew, undo }) => {
  undo(() => store.settleRagEmbedder(id))
  for (;;) {
    progress('embedding its documents anew')
    for (;;) {
      const { embedded, all } = await steps.embedRagCollection(id, operation_id)
      if (embedded === all) break
      progress(`embedding its documents anew: ${embedded} of ${all} chunks are done`)
      await renew()
    }
    progress('changing to the next embedder')
    if (await steps.useNextRagEmbedder(id, operation_id)) return { status: 'ready', next_embedder: null }
  }
})

/** Deletes a collection with its documents. */
export const deleteRagCollection = durable(
  async ({ id, progress }) => {
    progress('ending the work on its documents')
    await store.endRagWork({ collection_id: id })
    progress('dropping the collection in the store')
    await store.dropRagCollection(id)
    progress('removing the records of its documents')
    await store.forgetRagPart({ collection_id: id })
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
