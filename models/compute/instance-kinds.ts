import type { InstanceKindName } from '../../lib/host-protocol.ts'
import { everyTenant } from '../tenant-scope.ts'
import { containerKind } from './containers.ts'
import type { InstanceDocument, InstanceKind } from './instances.ts'
import { microvmKind } from './microvms.ts'
import { vmKind } from './vms.ts'

/** Every kind of instance. All that holds for each of them goes through this table. */
export const instanceKinds: Record<InstanceKindName, InstanceKind> = {
  container: containerKind,
  microvm: microvmKind,
  vm: vmKind,
}

export const allKinds: InstanceKind[] = Object.values(instanceKinds)

/** An instance, and what it is. */
export interface Instance {
  kind: InstanceKind
  instance: InstanceDocument
}

/** Those of whichever kind and tenant that match. */
export async function findInstances(filter: object): Promise<Instance[]> {
  const found = await Promise.all(
    allKinds.map(async (kind) => {
      const instances = await kind.model.find(filter).setOptions(everyTenant).lean()
      return instances.map((instance) => ({ kind, instance }))
    }),
  )
  return found.flat()
}

/** The one with this id, of whichever kind and tenant; null where there is none. */
export async function findInstance(id: string): Promise<Instance | null> {
  // One after the other: most are of the first kind, and cost one query.
  for (const kind of allKinds) {
    const instance = await kind.model.findById(id).setOptions(everyTenant).lean()
    if (instance) return { kind, instance }
  }
  return null
}
