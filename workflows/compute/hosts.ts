import { ApplicationFailure, proxyLocalActivities } from '@temporalio/workflow'
import type { PlatformHostActivities } from '../../activities/compute/hosts.ts'
import { atOnce } from '../at-once.ts'
import { isFailure } from '../carry-out.ts'
import { durable } from '../durable.ts'

const { movablesOn } = proxyLocalActivities<PlatformHostActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

// Each move pulls an image and starts an instance; more in parallel would only slow each other down.
const movesAtOnce = 8
// This many moves keep the history below the limit of one run (`renew`).
const batch = 50

/**
 * Moves all instances of a host, and the disks that none of them has attached, to other hosts. The host stays cordoned.
 * What cannot be moved stays, and the operation fails with the reasons.
 */
export const evacuateHost = durable(async (work) => {
  const { id, before, carried, progress, carryOut, renew } = work
  const failed = new Map(carried as [id: string, why: string][] | null)
  for (;;) {
    const there = await movablesOn(id)
    const left = there.filter((one) => !failed.has(one.id)).slice(0, batch)
    if (left.length === 0) {
      const whys = there.flatMap((one) => failed.get(one.id) ?? [])
      if (whys.length === 0) return { status: before }
      const reasons = [...new Set(whys)].join('; ')
      const detail = `${whys.length} of the host’s instances and disks could not be moved: ${reasons}`
      throw ApplicationFailure.nonRetryable(detail, 'not_evacuated')
    }
    let togo = there.length - failed.size
    const say = (): void => progress(`moving its instances and disks to other hosts: ${togo} to go`)
    say()
    await atOnce(movesAtOnce, left, async ({ kind, id: thing, verb, input }) => {
      try {
        // If another operation holds the resource, the move waits for it.
        await carryOut({ kind, id: thing }, verb, input, { waitsForOthers: true })
      } catch (error) {
        if (!isFailure(error)) throw error
        failed.set(thing, error.message)
      }
      togo--
      say()
    })
    await renew([...failed])
  }
})
