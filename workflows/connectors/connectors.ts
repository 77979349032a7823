import { proxyActivities } from '@temporalio/workflow'
import type { ConnectorActivities } from '../../activities/connectors/connectors.ts'

const looks = proxyActivities<ConnectorActivities>({
  startToCloseTimeout: '30 minutes', // a provider may take ten seconds, and eight are asked at once
  heartbeatTimeout: '10 s', // detects a killed worker
})

/** Runs by a schedule (worker/schedules.ts). */
export const lookAfterConnectors = (): Promise<{ looked_at: number }> => looks.lookAfterConnectors()
