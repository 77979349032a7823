import { expect, test } from '@jest/globals'
import { makeShared } from '../../api/still-allowed.ts'
import { eventually } from '../support/eventually.ts'

const refused = () => Promise.reject(new Error('no'))

test('callers under one key share an answer for a moment, and no other', async () => {
  const shared = makeShared<number>(50)
  let asked = 0
  const ask = async () => ++asked
  const both = await Promise.all([shared('one', ask), shared('one', ask), shared('other', ask)])
  expect(both).toEqual([1, 1, 2])
  await eventually(async () => (await shared('one', ask)) > 2)
})

test('a refusal is shared, too, and forgotten as soon', async () => {
  const shared = makeShared<string>(50)
  await expect(shared('one', refused)).rejects.toThrow('no')
  await expect(shared('one', async () => 'yes')).rejects.toThrow('no')
  expect(await eventually(() => shared('one', async () => 'yes').catch(() => null))).toBe('yes')
})
