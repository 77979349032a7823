import { proxyActivities, proxyLocalActivities, sleep } from '@temporalio/workflow'
import type { TenantActivities } from '../../activities/identity/tenants.ts'
import { atOnce } from '../at-once.ts'
import { isFailure } from '../carry-out.ts'
import { durable, type Work } from '../durable.ts'

const { resourcesLeft } = proxyLocalActivities<TenantActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})
const { removeTenantRecords } = proxyActivities<TenantActivities>({
  startToCloseTimeout: '1 day', // there may be very many; the next try goes on
  heartbeatTimeout: '10 s', // noticed soon when the worker is killed
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

const deletionsAtOnce = 16
// So many deletions add less to the history than a run may have (`renew`).
const batch = 50
// What refused to go may wait for a person, or for a host.
const betweenTries = '5 s'

export const deleteTenant = durable(
  async (work) => {
    await deleteResources(work)
    work.progress('removing the tenant’s records')
    await removeTenantRecords(work.id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)

/**
 * Deletes every resource by an operation of its own, one kind after the other and a batch at a time, until none is left. A kind of
 * which some cannot be deleted is tried again after the others, without an end to the tries.
 */
async function deleteResources({ id, carryOut, progress, renew }: Work<unknown>): Promise<void> {
  const stuck = new Set<string>()
  let deleted = 0
  for (;;) {
    const { kind, ids, total } = await resourcesLeft(id, [...stuck], batch)
    if (total === 0) return
    if (kind === null) {
      if (deleted === 0) await sleep(betweenTries)
      stuck.clear()
      deleted = 0
      continue
    }
    progress(`deleting the tenant’s resources: ${total} left`)
    await atOnce(deletionsAtOnce, ids, async (one) => {
      try {
        await carryOut({ kind, id: one }, 'delete', {}, { waitsForOthers: true })
        deleted++
      } catch (error) {
        if (!isFailure(error)) throw error
        stuck.add(kind) // or it is gone: the next look says which
      }
    })
    await renew()
  }
}
