import { proxyLocalActivities } from '@temporalio/workflow'
import type { ToolProbeActivities } from '../../activities/tools/tool-probes.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'

const platform = proxyLocalActivities<ToolProbeActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** Ends a probe, which takes its microVM away, when its tenant is deleted. */
export const deleteToolProbe = durable(async () => 'deleted', { final: true })

/** Asks a server of stdio for its tools, in a microVM that is gone afterwards. */
export const createToolProbe = durable(
  async ({ id, progress, carryOut }) => {
    progress('starting a microVM for the command')
    const microvm = await platform.microvmOfProbe(id)
    const microvm_id = await carryOut({ kind: 'microvm' }, 'create', microvm, { key: 'microvm' })
    const host_id = await platform.placeOfProbe(id, microvm_id)
    progress('asking the server for its tools')
    // A command may have done anything when its host is killed: another microVM would be needed to try again.
    const finding = await on(host_id, {
      scheduleToStartTimeout: '1 minute',
      startToCloseTimeout: '4 minutes', // the probe ends by itself before
      heartbeatTimeout: '30 s', // it is not tried again, so a restart of Temporal must not end it
      retry: { maximumAttempts: 1 },
    }).probeToolOnHost(id, microvm_id)
    await platform.noteFinding(id, finding)
    progress('removing the microVM')
    await carryOut({ kind: 'microvm', id: microvm_id }, 'delete', {}, { key: 'end' })
    return { status: 'succeeded' }
  },
  { onFailure: 'failed', onCancel: 'cancelled' },
)
