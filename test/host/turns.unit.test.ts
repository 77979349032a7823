import { describe, expect, test } from '@jest/globals'
import { makeTurns } from '../../activities/host/turns.ts'
import { taskSlots } from '../../worker/host/task-slots.ts'

/** Turns of one at a time, with pieces of one tenant that end on command. */
function crowd(pieces: number) {
  const turns = makeTurns(1)
  const ends: (() => void)[] = []
  const work = () => new Promise<void>((resolve) => ends.push(resolve))
  const ended = Array.from({ length: pieces }, () => turns.take(work, undefined, 'busy'))
  return { turns, ended, endOne: () => ends.shift()?.() }
}

const asked = async (asking: Promise<unknown>): Promise<boolean> => {
  const later = new Promise((resolve) => setTimeout(resolve, 20, 'later'))
  return (await Promise.race([asking, later])) !== 'later'
}
const never = new AbortController().signal

describe('a host', () => {
  test('takes tasks while few wait', async () => {
    const { turns } = crowd(8)
    expect(await asked(turns.untilFewer(never))).toBe(true)
  })

  test('takes one task for each that begins while many wait', async () => {
    const { turns, ended, endOne } = crowd(10)
    const taken = [turns.untilFewer(never), turns.untilFewer(never)]
    expect(await Promise.all(taken.map(asked))).toEqual([false, false])
    endOne()
    await ended[0]
    expect(await Promise.all(taken.map(asked))).toEqual([true, false])
  })

  test('takes all tasks again when none waits', async () => {
    const { turns, ended, endOne } = crowd(9)
    const taken = Array.from({ length: 12 }, () => turns.untilFewer(never))
    for (const piece of ended) {
      await new Promise(setImmediate)
      endOne()
      await piece
    }
    await Promise.all(taken)
  })

  test('ends its wait when its worker stops, with the reason of the signal', async () => {
    const { turns } = crowd(9)
    const stopping = new AbortController()
    const { activityTaskSlotSupplier: slots } = taskSlots(turns)
    if (slots.type !== 'custom') throw new Error(slots.type)
    const context = { slotType: 'activity', taskQueue: 'q', workerIdentity: 'w', workerBuildId: '' } as const
    const reserving = slots.reserveSlot({ ...context, isSticky: false }, stopping.signal)
    const reason = new Error('stopped')
    stopping.abort(reason)
    await expect(reserving).rejects.toBe(reason)
  })
})
