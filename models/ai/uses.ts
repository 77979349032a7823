import type { ProviderName } from '../connectors/catalogue.ts'
import { Connector } from '../connectors/connectors.ts'
import { holdConnector, holdDefault, usesConnectors } from '../connectors/uses.ts'
import { NotFound } from '../../lib/problem.ts'
import { lockParent } from '../parents.ts'
import { ragCollectionResource } from '../retrieval/collections.ts'
import { usesCollections } from '../retrieval/uses.ts'
import { holdTool, usesTools } from '../tools/uses.ts'
import { makeUsers } from '../uses.ts'
import { AiWorkflow, title } from './ai-workflows.ts'
import { AiDeployment } from './deployments.ts'
import type { VersionUse } from './versions.ts'

// What published workflows use: the version published last counts, since it is deployed next, and the deployed one. Others do
// not keep anything from its deletion.

const users = makeUsers<{ _id: string; tenant_id: string }>(title)

/** Throws InUse while others call the workflow. Call in the transaction of its deletion, after the write to it. */
export const needUncalled = users.needNone

/** How a workflow's document names what it uses: an index finds it. */
export const keyOfUse = ({ kind, id, reference }: Pick<VersionUse, 'kind' | 'id' | 'reference'>): string =>
  `${kind}:${id ?? reference}`

const using = async (tenant_id: string, keys: string[]): Promise<{ id: string; name: string }[]> => {
  const deployed = await AiDeployment.distinct('workflow_id', { tenant_id, uses: { $in: keys } })
  const its = { $or: [{ uses: { $in: keys } }, { _id: { $in: deployed } }] }
  const found = await AiWorkflow.find({ tenant_id, ...its }, { name: 1 }).lean()
  return found.map(({ _id, name }) => ({ id: _id, name }))
}

usesTools(title, ({ _id, tenant_id }) => using(tenant_id, [`tool:${_id}`]))
usesCollections(title, ({ _id, tenant_id }) => using(tenant_id, [`collection:${_id}`]))
users.declare(title, ({ _id, tenant_id }) => using(tenant_id, [`workflow:${_id}`]))

// Who names a provider takes its default, and when that is deleted another one takes its place, if there is one.
usesConnectors(title, async ({ _id, tenant_id, provider }) => {
  const status = { $in: ['active', 'refreshing', 'unchecked'] as const }
  const hasOther = await Connector.exists({ tenant_id, provider, status, _id: { $ne: _id } })
  return using(tenant_id, [`connector:${_id}`, ...(hasOther ? [] : [`connector:${provider}`])])
})

/**
 * Locks what a version uses until the transaction ends: nothing of it is deleted between. Throws NotFound and StateConflict
 * if some of it is gone.
 */
export async function holdUses(tenant_id: string, uses: VersionUse[]): Promise<void> {
  for (const { kind, id, reference } of uses) {
    if (id === null) await holdDefault(tenant_id, reference as ProviderName)
    else if (kind === 'connector') await holdConnector(tenant_id, id)
    else if (kind === 'tool') await holdTool(tenant_id, id)
    else if (kind === 'collection') await lockParent(ragCollectionResource, tenant_id, id)
    else await holdWorkflow(tenant_id, id)
  }
}

async function holdWorkflow(tenant_id: string, _id: string): Promise<void> {
  const published = { _id, tenant_id, status: 'published' as const }
  const held = await AiWorkflow.updateOne(published, { $inc: { turns: 1 } }, { timestamps: false })
  if (!held.matchedCount) throw new NotFound(title)
}
