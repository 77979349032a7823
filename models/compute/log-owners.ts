import { LoadBalancer } from '../network/load-balancers.ts'
import type { ResourceDocument } from '../resources.ts'
import { everyTenant } from '../tenant-scope.ts'
import { allKinds, findInstance } from './instance-kinds.ts'
import { isFormerHost } from './log-archive.ts'
import { ownersOn } from './reservations.ts'

// Whose output is archived: instances and load balancers.

export type LogOwner = Pick<ResourceDocument, '_id' | 'tenant_id' | 'status'>

/** Every kind of owner, by name. */
export const logOwnerModels = [
  ...allKinds.map(({ kind, model }) => ({ kind, collection: model.collection.collectionName })),
  { kind: 'load_balancer', collection: LoadBalancer.collection.collectionName },
]

/** Finds an owner of any kind and tenant. */
export const findLogOwner = async (id: string): Promise<LogOwner | null> =>
  (await findInstance(id))?.instance ?? LoadBalancer.findById(id).setOptions(everyTenant).lean()

/** Whether the host has or had this owner, and may send its output. */
export const mayHaveOutput = async (hostId: string, id: string): Promise<boolean> =>
  (await ownersOn(hostId, [id])).has(id) || isFormerHost(id, hostId)
