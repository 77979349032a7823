import { Problem, NotFound } from '../../lib/problem.ts'
import { Connector, type ConnectorDocument } from './connectors.ts'

// What uses connectors. The user declares this, because it knows connectors and they do not know it.

/** One resource that uses a connector. */
export interface ConnectorUse {
  kind: string
  id: string
  name: string
}

type Find = (connector: Pick<ConnectorDocument, '_id' | 'tenant_id'>) => Promise<Omit<ConnectorUse, 'kind'>[]>
const users = new Map<string, Find>()

/**
 * Declares that resources of a kind use connectors. `find` returns those of the tenant that use this one; it runs in the
 * transaction of the deletion.
 */
export function usesConnectors(kind: string, find: Find): void {
  users.set(kind, find)
}

/** All that use the connector. */
export async function usesOf(
  connector: Pick<ConnectorDocument, '_id' | 'tenant_id'>,
): Promise<ConnectorUse[]> {
  const all: ConnectorUse[] = []
  for (const [kind, find] of users)
    for (const { id, name } of await find(connector)) all.push({ kind, id, name })
  return all
}

/**
 * The connector that something new will use, locked until the transaction ends: no deletion comes between. Throws
 * NotFound.
 */
export async function holdConnector(tenant_id: string, _id: string): Promise<ConnectorDocument> {
  const held = await Connector.findOneAndUpdate(
    { _id, tenant_id, status: { $ne: 'revoked' } },
    { $inc: { turns: 1 } },
    { timestamps: false, returnDocument: 'after' },
  ).lean()
  if (!held) throw new NotFound('connector')
  return held
}

const shown = 20

export class ConnectorInUse extends Problem {
  constructor(uses: ConnectorUse[]) {
    const named = uses.slice(0, shown).map(({ kind, name }) => `${kind} ${name}`)
    super(409, 'connector_in_use', 'The connector is in use', `Used by ${named.join(', ')}`, {
      extensions: { uses: uses.slice(0, shown), count: uses.length },
    })
  }
}
