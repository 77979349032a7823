import { describe, expect, test } from '@jest/globals'
import { failureOf } from '../../activities/failures.ts'
import { makeSlots } from '../../activities/host/slots.ts'
import { EngineUnavailable, PortInUse } from '../../drivers/errors.ts'

test('a permanent fault is not tried again and says its code; another is; what is no fault is left alone', () => {
  const cause = new Error('bind: address already in use')
  expect(failureOf(new PortInUse(80, cause))).toMatchObject({
    message: 'The host port 80 is in use',
    type: 'port_in_use',
    nonRetryable: true,
    details: [{ port: 80 }],
  })
  expect(failureOf(new EngineUnavailable('away'))).toMatchObject({
    type: 'engine_unavailable',
    nonRetryable: false,
  })
  expect(failureOf(cause)).toBe(cause)
})

describe('slots', () => {
  const never = new AbortController().signal

  test('are taken in order, so many at once', async () => {
    const inSlot = makeSlots(2)
    const begun: number[] = []
    const ends: (() => void)[] = []
    const all = [0, 1, 2, 3].map((number) =>
      inSlot(() => {
        begun.push(number)
        return new Promise<void>((resolve) => ends.push(resolve))
      }, never),
    )
    expect(begun).toEqual([0, 1])
    ends[1]?.()
    await all[1]
    expect(begun).toEqual([0, 1, 2])
    ends[0]?.()
    await all[0]
    expect(begun).toEqual([0, 1, 2, 3])
    for (const end of ends) end()
    await Promise.all(all)
  })

  test('are not lost by work that fails, nor by who leaves the line', async () => {
    const inSlot = makeSlots(1)
    const leaving = new AbortController()
    const failing = inSlot(() => Promise.reject(new Error('failed')), never)
    const left = inSlot(() => Promise.resolve('left'), leaving.signal)
    const last = inSlot(() => Promise.resolve('last'), never)
    leaving.abort(new Error('called off'))
    await expect(failing).rejects.toThrow('failed')
    await expect(left).rejects.toThrow('called off')
    expect(await last).toBe('last')
    expect(await inSlot(() => Promise.resolve('free'), never)).toBe('free')
  })
})
