import { expect, test } from '@jest/globals'
import { again, mayPass, patiently } from '../../activities/host/patience.ts'
import { targetFailedCode } from '../../lib/backup-protocol.ts'

// What a host does when the API says that a tenant's bucket has failed.

const fault = (permanent: boolean) =>
  Object.assign(new Error('It is away'), { code: targetFailedCode, permanent })

/** Fails so often, then returns how often it was called. */
function failing(times: number, error: Error) {
  let calls = 0
  return { work: async () => (++calls > times ? calls : Promise.reject(error)), calls: () => calls }
}
const { signal } = new AbortController()
const waits = [1, 1]

test('a bucket that is back in time is written to', async () => {
  expect(await patiently(failing(2, fault(false)).work, { signal, waits })).toBe(3)
})

test('a bucket that stays away fails the backup with the reason', async () => {
  await expect(patiently(failing(3, fault(false)).work, { signal, waits })).rejects.toMatchObject({
    name: 'BackupFailed',
    permanent: true,
    message: 'It is away',
  })
})

test.each([fault(true), new Error('something else')])('%s is not waited for', async (error) => {
  const { work, calls } = failing(1, error)
  await expect(patiently(work, { signal, waits })).rejects.toBe(error)
  expect(calls()).toBe(1)
})

test('a cancellation ends the wait', async () => {
  const ending = new AbortController()
  const waiting = patiently(failing(9, fault(false)).work, { signal: ending.signal, waits: [600_000] })
  ending.abort()
  await expect(waiting).rejects.toMatchObject({ name: 'AbortError' })
})

test('an API that is back in time is asked again, and not for an answer that stays', async () => {
  const passes = mayPass
  expect(await again(failing(2, fault(false)).work, { signal, waits, passes })).toBe(3)
  for (const error of [fault(true), new Error('something else')]) {
    const { work, calls } = failing(1, error)
    await expect(again(work, { signal, waits, passes })).rejects.toBe(error)
    expect(calls()).toBe(1)
  }
})
