import { Context } from '@temporalio/activity'
import { lookAfterConnectors } from '../../models/connectors/renewals.ts'

export const makeConnectorActivities = () => ({
  /** Refreshes tokens that end soon, tells of logins that have ended, and checks what could not be checked before. */
  async lookAfterConnectors(): Promise<{ looked_at: number }> {
    const { log } = Context.current()
    const looked_at = await lookAfterConnectors(({ _id, tenant_id, provider }, error) =>
      log.info('a connector was not checked or refreshed; trying again later', {
        connector_id: _id,
        tenant_id,
        provider,
        reason: error instanceof Error ? error.message : String(error),
      }),
    )
    return { looked_at }
  },
})

export type ConnectorActivities = ReturnType<typeof makeConnectorActivities>
