import { proxyActivities } from '@temporalio/workflow'
import type { TenantActivities } from '../../activities/identity/tenants.ts'
import { durable } from '../durable.ts'

const { deleteResources, removeTenantRecords } = proxyActivities<TenantActivities>({
  // A tenant may have much, on hosts that are away: then the next try goes on, without an end to the tries.
  startToCloseTimeout: '1 day',
  heartbeatTimeout: '10 s', // noticed soon when the worker is killed
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

export const deleteTenant = durable(
  async ({ id, progress }) => {
    progress('deleting the tenant’s resources')
    await deleteResources(id)
    progress('removing the tenant’s records')
    await removeTenantRecords(id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
