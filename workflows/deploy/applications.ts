import { proxyActivities, proxyLocalActivities } from '@temporalio/workflow'
import type { ChildActivities } from '../../activities/child-operations.ts'
import type { DeploymentActivities } from '../../activities/deploy/deployments.ts'
import type { OperationActivities } from '../../activities/operations.ts'
import { durable } from '../durable.ts'
import { together } from '../together.ts'
import { apply, route, tidyVolumes } from './deployments.ts'
import { domains } from './domains.ts'

const platform = proxyLocalActivities<DeploymentActivities & ChildActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

const { awaitOperation } = proxyActivities<OperationActivities>({
  startToCloseTimeout: '1 hour', // a deployment that cannot be cancelled any more drains first
  heartbeatTimeout: '10 s', // detects a killed worker soon
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

/** Cancels the deployments under way, and waits for their ends. */
export async function endDeployments(of: { app_id: string } | { deploy_server_id: string }): Promise<void> {
  const open = await platform.openDeployments(of)
  await Promise.all(open.map((id) => platform.cancelChild(id)))
  for (const id of open) await awaitOperation(id)
}

export const deleteApplication = durable<{ deploy_server_id: string }>(
  async ({ id, input, progress, carryOut }) => {
    const deleteDomains = async (): Promise<void> => {
      const ids = await domains.domainsOfApplication(id)
      const rules = { waitsForOthers: true, undo: null }
      await together(
        ids.map((one) => carryOut({ kind: 'domain', id: one }, 'delete', {}, { ...rules, key: one })),
      )
    }
    progress('cancelling its deployments')
    await endDeployments({ app_id: id })
    await deleteDomains()
    progress('removing the application from the workers')
    await route(id, [], { orLater: true })
    await platform.wantOnly(id, [])
    await apply(input.deploy_server_id, id)
    progress('destroying its volumes')
    await tidyVolumes(id, false)
    await platform.forgetDeployments(id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
