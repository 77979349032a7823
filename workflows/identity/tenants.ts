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
  startToCloseTimeout: '1 day', // there may be very many records; a retry continues
  heartbeatTimeout: '10 s', // detects a killed worker
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

const deletionsAtOnce = 16
// This many deletions keep the history below the limit of one run (`renew`).
const batch = 50
// A failed deletion may need an operator's action or a host's return.
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
 * Deletes each resource with a separate operation, kind by kind and in batches, until none is left. If a deletion
 * fails, its kind is retried after the others, without a limit.
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
        stuck.add(kind) // if the resource is gone already, the next query shows it
      }
    })
    await renew()
  }
}
