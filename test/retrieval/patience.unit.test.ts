import { expect, test } from '@jest/globals'
import { ApplicationFailure } from '@temporalio/activity'
import { patiently } from '../../activities/retrieval/patience.ts'
import { BlobMissing } from '../../lib/blob-store.ts'
import { ModelFailed } from '../../models/retrieval/embeddings.ts'
import { StoreError } from '../../models/retrieval/store-rules.ts'
import { inActivity } from '../support/in-activity.ts'

// How work on documents waits for what is away, and when it ends.

const away = new StoreError('unavailable', 'The store does not answer')
const busy = new ModelFailed('The model gateway does not answer', {
  code: 'embedder_unavailable',
  permanent: false,
})
const refused = new ModelFailed('The budget is spent', { code: 'budget_exceeded', permanent: true })

/** What the work ends with if it fails so in this attempt. */
const failureAt = (error: Error, attempt: number, most?: { mostAttempts: number }): Promise<unknown> =>
  inActivity(async () => {
    try {
      return await patiently(async () => {
        throw error
      }, most)
    } catch (failure) {
      return failure
    }
  }, attempt)

test.each([
  ['a store', away, 'store_unavailable'],
  ['the model gateway', busy, 'embedder_unavailable'],
])('%s that is away is tried again', async (_, error, type) => {
  for (const attempt of [1, 34])
    expect(await failureAt(error, attempt)).toMatchObject({
      type,
      nonRetryable: false,
      message: error.message,
    })
})

test.each([
  ['a store', away, 'store_unavailable'],
  ['the model gateway', busy, 'embedder_unavailable'],
])('%s that is away for half an hour ends the work, which says so', async (_, error, type) => {
  const failure = await failureAt(error, 35)
  expect(failure).toBeInstanceOf(ApplicationFailure)
  expect(failure).toMatchObject({
    type,
    nonRetryable: true,
    message: `${error.message}, after attempts for half an hour`,
  })
})

test('what has to happen is tried without end', async () => {
  expect(await failureAt(away, 10_000, { mostAttempts: Infinity })).toMatchObject({ nonRetryable: false })
})

test('what a retry cannot help ends the work at once', async () => {
  expect(await failureAt(refused, 1)).toMatchObject({
    type: 'budget_exceeded',
    nonRetryable: true,
    message: 'The budget is spent',
  })
  expect(await failureAt(new StoreError('store_full', 'The store is full'), 1)).toMatchObject({
    type: 'store_full',
    nonRetryable: true,
  })
  expect(await failureAt(new BlobMissing('x', null), 1)).toMatchObject({
    type: 'content_gone',
    nonRetryable: true,
  })
})

test('another failure is the SDK’s to handle', async () => {
  const other = new Error('out of memory')
  expect(await failureAt(other, 35)).toBe(other)
})
