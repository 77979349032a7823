import { InvalidInput } from '../../lib/problem.ts'
import { begin, type By } from '../acceptance.ts'
import { type Accepted, Operation } from '../operations.ts'
import { everyTenant } from '../tenant-scope.ts'
import { type DeployServerDocument, deployServerResource } from './deploy-servers.ts'
import { needNoVolumesBeyond } from './storages.ts'

// The acceptance rules for changes of a deploy server.

export type DeployServerChanges = {
  [Field in 'worker_count' | 'worker_instance_type' | 'worker_disk_gib' | 'app_instance_type' | 'tags']?:
    | DeployServerDocument[Field]
    | undefined
}

/** Throws as `begin`, InvalidInput (a smaller disk), QuotaExceeded and `storage_on_worker`. */
export const acceptDeployServerUpdate = (
  by: By,
  id: string,
  changes: DeployServerChanges,
): Promise<Accepted<DeployServerDocument>> => {
  const given = Object.entries(changes).filter(([, value]) => value !== undefined)
  const set: Partial<DeployServerDocument> = Object.fromEntries(given)
  return begin(by, deployServerResource, id, 'update', {
    set,
    reserve: async (server) => {
      const { worker_disk_gib, worker_count, nodes } = server
      await needNoVolumesBeyond(server, worker_count)
      // After a growth that was cancelled, some disks are larger than those of new workers.
      if (set.worker_disk_gib === undefined) return
      const present = Math.max(
        0,
        ...nodes.filter(({ name }) => name !== 'cp').map(({ disk_gib }) => disk_gib),
      )
      if (worker_disk_gib >= present) return
      const message = `is too small: the workers have ${present} GiB, and disks never shrink`
      throw new InvalidInput(422, [{ pointer: '/worker_disk_gib', message }])
    },
  })
}

/** Has a worker join the Swarm, which does not know it. Nothing else of the deploy server changes. Throws as `begin`. */
export const acceptJoin = (by: By, id: string, name: string): Promise<Accepted<DeployServerDocument>> =>
  begin(by, deployServerResource, id, 'update', { input: { joins: name } })

/**
 * Keeps a worker that an update has added, and those before it, among the wanted ones, also if the update fails: it may
 * serve already. The control plane is always wanted.
 */
export async function keepWorker(operation_id: string, name: string): Promise<void> {
  if (name === 'cp') return
  const worker_count = Number(name.slice(1))
  await Operation.updateOne(
    { _id: operation_id, 'before.worker_count': { $lt: worker_count } },
    { $set: { 'before.worker_count': worker_count } },
  ).setOptions(everyTenant)
}
