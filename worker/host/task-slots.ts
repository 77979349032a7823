import { EventEmitter, once } from 'node:events'
import type { ActivitySlotInfo, CustomSlotSupplier, TunerHolder } from '@temporalio/worker'
import type { Turns } from '../../activities/host/turns.ts'

// Most activities only wait: for a grace period, a download, an answer. With a low limit, one tenant's slow stops would
// block other tenants' starts.
const mostAtOnce = 200

/**
 * Says when the host takes a task. While many wait for their turn here, it takes one for each that begins: in Temporal's
 * queue the tenants take turns, and a task that waits there sends no heartbeats.
 */
export function taskSlots(turns: Turns): TunerHolder {
  const none = { type: 'fixed-size', numSlots: 1 } as const // an activity worker has no such tasks
  return {
    activityTaskSlotSupplier: activitySlots(turns),
    workflowTaskSlotSupplier: none,
    localActivityTaskSlotSupplier: none,
    nexusTaskSlotSupplier: none,
  }
}

function activitySlots(turns: Turns): CustomSlotSupplier<ActivitySlotInfo> {
  const released = new EventEmitter<{ released: [] }>().setMaxListeners(0)
  let reserved = 0
  const isFull = () => reserved >= mostAtOnce
  return {
    type: 'custom',
    async reserveSlot(_, signal) {
      try {
        await turns.untilFewer(signal)
        while (isFull()) await once(released, 'released', { signal })
        reserved++
        return {}
      } catch (error) {
        throw signal.aborted ? signal.reason : error
      }
    },
    tryReserveSlot: () => null, // for tasks that a workflow of the same worker begins
    markSlotUsed() {},
    releaseSlot() {
      reserved--
      released.emit('released')
    },
  }
}
