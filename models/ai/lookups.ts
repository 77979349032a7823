import { bounds } from '../../lib/ai/bounds.ts'
import type { Lookups, PublishedWorkflow, ToolSchemas } from '../../lib/ai/lookups.ts'
import { makeQueue } from '../../lib/queue.ts'
import { type ProviderName, providerNames, providerOf } from '../connectors/catalogue.ts'
import { Connector, type ConnectorDocument } from '../connectors/connectors.ts'
import { hasModel } from '../connectors/models.ts'
import { limitOf, tenantOf } from '../identity/tenants.ts'
import { RagCollection } from '../retrieval/collections.ts'
import { notCallable } from '../tools/definitions.ts'
import { listingOf } from '../tools/listings.ts'
import { definition, Tool, type ToolDocument } from '../tools/tools.ts'
import { AiWorkflow } from './ai-workflows.ts'
import { chainOf } from './calls.ts'
import { AiWorkflowVersion, planOf, type VersionUse } from './versions.ts'

// What a spec may refer to, among the things of one tenant.

export interface Author {
  tenant_id: string
  /** Whether providers may be asked, with the tenant's credentials, which models they have. */
  asks_providers: boolean
}

// Somebody waits, and perhaps in a transaction, which MongoDB ends after 5 s.
const providersWithinMs = 3_000
const providersAtOnce = 8
// One request to the API makes no more than that to others.
const mostQuestions = 20

/** The lookups of a workflow's validation, and all that they have found. */
export async function lookupsFor(
  { tenant_id, asks_providers }: Author,
  self: { _id: string; name: string },
): Promise<{ lookups: Lookups; uses: () => VersionUse[] }> {
  const uses = new Map<string, VersionUse>()
  const note = (kind: VersionUse['kind'], reference: string, id: string | null, version: number | null) =>
    void uses.set(JSON.stringify([kind, reference, version]), { kind, reference, id, version })
  const connectors = new Map<string, ConnectorDocument>()
  const inTurn = makeQueue(providersAtOnce)
  const askUntil = Date.now() + providersWithinMs
  let questions = 0

  const lookups: Lookups = {
    async connector(reference) {
      const found = await connectorFor(tenant_id, reference)
      if (!found) return null
      connectors.set(reference, found)
      note('connector', reference, found._id === reference ? reference : null, null)
      return found
    },
    model(reference, name) {
      const connector = connectors.get(reference)
      if (!connector || !asks_providers || questions++ >= mostQuestions) return Promise.resolve(null)
      return inTurn(async () => {
        const leftMs = askUntil - Date.now()
        return leftMs > 0 ? hasModel(connector, name, leftMs) : null
      })
    },
    async tool(reference, name) {
      const found = preferred(
        await Tool.find({ tenant_id, $or: [{ _id: reference }, { name: reference }] }).lean(),
        reference,
      )
      const schemas = found && schemasOf(found, name)
      if (schemas) note('tool', reference, found._id, null)
      return schemas
    },
    async collection(name) {
      // What is being deleted, or could not be deleted, is no place to search.
      const status = { $in: ['creating', 'ready'] as const }
      const found = await RagCollection.findOne({ tenant_id, managed_by: null, name, status }).lean()
      if (found) note('collection', name, found._id, null)
      return found
    },
    async workflow(reference, version) {
      if (reference === self._id || reference === self.name) return itself(self._id)
      const found = preferred(
        await AiWorkflow.find({ tenant_id, $or: [{ _id: reference }, { name: reference }] }).lean(),
        reference,
      )
      const number = version ?? found?.latest_version ?? null
      if (!found || number === null) return null
      const published = await publishedAs(tenant_id, found._id, number)
      if (published) note('workflow', reference, found._id, version)
      return published
    },
    most: {
      // No limit is in dollars: the tokens of a month bound what a tenant spends.
      usd: Number.POSITIVE_INFINITY,
      tokens: limitOf(await tenantOf(tenant_id), 'max_llm_tokens_month'),
      wall_sec: bounds.wallSec,
    },
    self_id: self._id,
  }
  return { lookups, uses: () => [...uses.values()] }
}

/** A name may look like an id: the id comes first. */
const preferred = <D extends { _id: string }>(found: D[], reference: string): D | null =>
  found.find(({ _id }) => _id === reference) ?? found[0] ?? null

const isProvider = (reference: string): reference is ProviderName =>
  (providerNames as string[]).includes(reference)

/** By id, or the default of a provider. Only one to a provider of models. */
async function connectorFor(tenant_id: string, reference: string): Promise<ConnectorDocument | null> {
  const which = isProvider(reference) ? { provider: reference, is_default: true } : { _id: reference }
  const found = await Connector.findOne({ tenant_id, status: { $ne: 'revoked' }, ...which }).lean()
  return found && providerOf(found.provider).serves === 'models' ? found : null
}

const unknown: ToolSchemas = { input_schema: null, output_schema: null }

/** Null: it has no tool of this name. */
function schemasOf(tool: ToolDocument, name: string | null): ToolSchemas | null {
  const of = definition(tool)
  const not_callable = notCallable(of)
  if (not_callable !== null) return { ...unknown, not_callable }
  const { kind, input_schema, document } = of
  if (kind === 'http') return name === null ? { input_schema, output_schema: null } : null
  if (name === null) return { ...unknown, are_several: true }
  if (kind === 'openapi') return document === null || hasOperation(document, name) ? unknown : null
  const listing = listingOf(tool)
  return listing === null ? unknown : (listing.find((one) => one.name === name) ?? null)
}

/** Whether a document of OpenAPI has an operation with this id. */
function hasOperation({ paths }: Record<string, unknown>, operationId: string): boolean {
  return Object.values(Object(paths) as object).some((path: unknown) =>
    Object.values(Object(path) as object).some(
      (one: unknown) => (Object(one) as { operationId?: unknown }).operationId === operationId,
    ),
  )
}

const itself = (id: string): PublishedWorkflow => ({ input: 'any', output: 'any', depth: 1, calls: [id] })

async function publishedAs(
  tenant_id: string,
  workflow_id: string,
  version: number,
): Promise<PublishedWorkflow | null> {
  const found = await AiWorkflowVersion.findOne({ tenant_id, workflow_id, version }).lean()
  if (!found) return null
  const { input, output, redacted } = planOf(found)
  const redaction = redacted?.output ?? null
  return {
    input,
    output: output.type,
    redaction,
    ...(await chainOf(tenant_id, [{ id: workflow_id, version }])),
  }
}
