import { expect, test } from '@jest/globals'
import { makePushGate } from '../../../drivers/swarm/push-gate.ts'

const machine = 'm'
const part = { image: 'shop', last: false }
const nothing = async (): Promise<void> => {}

test('garbage is not collected while a push is under way, and is when it has ended', async () => {
  const gate = makePushGate()
  await gate.write(machine, part, nothing)
  expect(await gate.collect(machine, nothing)).toBe(false)
  expect(await gate.collect('another', nothing)).toBe(true)
  await gate.write(machine, { image: 'shop', last: true }, nothing)
  expect(await gate.collect(machine, nothing)).toBe(true)
})

test('a push that is silent for five minutes has ended, unless it still sends', async () => {
  let now = 0
  const gate = makePushGate(() => now)
  await gate.write(machine, part, nothing)
  const { promise, resolve } = Promise.withResolvers<void>()
  const slow = gate.write(machine, { image: 'slow', last: false }, () => promise)
  now += 6 * 60_000
  expect(await gate.collect(machine, nothing)).toBe(false)
  resolve()
  await slow
  now += 6 * 60_000
  expect(await gate.collect(machine, nothing)).toBe(true)
})

test('a push waits while garbage is collected, also if that fails', async () => {
  const gate = makePushGate()
  const { promise, reject } = Promise.withResolvers<void>()
  const order: string[] = []
  const collecting = gate
    .collect(machine, () => promise)
    .catch(() => {
      order.push('collected')
    })
  const writing = gate.write(machine, part, async () => {
    order.push('written')
  })
  await Promise.resolve()
  reject(new Error('no'))
  await Promise.all([collecting, writing])
  expect(order.toSorted()).toEqual(['collected', 'written'])
})
