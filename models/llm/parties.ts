import { Connector, type ConnectorDocument } from '../connectors/connectors.ts'
import { Tenant, type TenantDocument } from '../identity/tenants.ts'
import { aggregate } from '../commands.ts'

export type CallingTenant = Pick<TenantDocument, '_id' | 'status' | 'limits'>

/** For whom a call is, and by which connector, as they are now. One question: each call asks it. */
export async function partiesOf(
  tenant_id: string,
  connector_id: string | null,
): Promise<{ tenant: CallingTenant | null; connector: ConnectorDocument | null }> {
  const found = await aggregate<CallingTenant | ConnectorDocument>(Tenant.collection.name, [
    { $match: { _id: tenant_id } },
    { $project: { status: 1, limits: 1 } },
    {
      $unionWith: {
        coll: Connector.collection.name,
        pipeline: [{ $match: { _id: connector_id, tenant_id } }],
      },
    },
  ])
  return {
    tenant: (found.find(({ _id }) => _id === tenant_id) as CallingTenant | undefined) ?? null,
    connector: (found.find(({ _id }) => _id === connector_id) as ConnectorDocument | undefined) ?? null,
  }
}
