import { InvalidInput } from '../../lib/problem.ts'
import { providerNames, providerOf } from '../connectors/catalogue.ts'
import { Connector, type ConnectorDocument } from '../connectors/connectors.ts'
import { holdConnector } from '../connectors/uses.ts'
import { type CollectionEmbedder, remoteEmbedder } from './embedders.ts'
import { ModelFailed, type Embeddings, type EmbeddingsAsked } from './embeddings.ts'
import { answered } from './problems.ts'
import type { RagStoreDocument } from './stores.ts'

// The embedder that a request names.

/** A model of a connector, which is named by its id or, for the default one, by its provider. */
export interface AskedModel {
  connector: string
  model: string
}

/** By name or id one of the platform's own; undefined: the first of them. */
export type AskedEmbedder = string | AskedModel | undefined

/** Somebody waits for the answer. */
const answersWithinMs = 10_000
/** A provider may load the model first. */
const vectorWithinMs = 30_000

const invalid = (pointer: string, message: string): InvalidInput =>
  new InvalidInput(422, [{ pointer, message }])

/** Throws InvalidInput, and what the model gateway refuses. */
export async function chooseEmbedder(
  embeddings: Embeddings,
  { _id: id, tenant_id }: RagStoreDocument,
  asked: AskedEmbedder,
): Promise<CollectionEmbedder> {
  // On the store's account: there may be no collection in the end.
  const purpose = { kind: 'collection', id } as const
  if (typeof asked === 'object') return remote(embeddings, { tenant_id, purpose }, asked)
  const signal = AbortSignal.timeout(answersWithinMs)
  const models = await answered(embeddings.models({ tenant_id, purpose, signal }))
  const found = models.find((one) => asked === undefined || one.id === asked || one.name === asked)
  if (found) return found
  const names = models.map(({ name }) => name).join(', ')
  throw invalid('/embedder', `is not one of the platform’s embedders: ${names}`)
}

/** Its dimensions are those of a vector of it. */
async function remote(
  embeddings: Embeddings,
  by: Pick<EmbeddingsAsked, 'tenant_id' | 'purpose'>,
  { connector: named, model }: AskedModel,
): Promise<CollectionEmbedder> {
  const connector = await connectorNamed(by.tenant_id, named, '/embedder/connector')
  const signal = AbortSignal.timeout(vectorWithinMs)
  const asking = embeddings.embed(['dimensions'], { ...by, connector_id: connector._id, model, signal })
  const { vectors } = await answered(
    asking.catch((error: unknown) => {
      // A spent budget is none of the model's faults.
      if (error instanceof ModelFailed && error.permanent && error.code !== 'budget_exceeded')
        throw invalid('/embedder/model', `cannot embed: ${error.message}`)
      throw error
    }),
  )
  return remoteEmbedder(connector, model, vectors[0]?.length ?? 0)
}

/** The connector to models of this id, or the provider's default. `pointer`: where it is named. Throws InvalidInput. */
export async function connectorNamed(
  tenant_id: string,
  named: string,
  pointer: string,
): Promise<ConnectorDocument> {
  const provider = providerNames.find((name) => name === named)
  const which = provider ? { provider, is_default: true } : { _id: named }
  const connector = await Connector.findOne({ tenant_id, ...which, status: { $ne: 'revoked' } }).lean()
  if (!connector) throw invalid(pointer, 'no such connector')
  if (providerOf(connector.provider).serves !== 'models')
    throw invalid(pointer, 'is not a connector to models')
  return connector
}

/** Keeps the connector from being deleted until the collection is seen to use it. In a transaction. Throws NotFound. */
export async function holdEmbedder(tenant_id: string, { connector_id }: CollectionEmbedder): Promise<void> {
  if (connector_id !== undefined) await holdConnector(tenant_id, connector_id)
}
