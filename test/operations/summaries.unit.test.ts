import { expect, test } from '@jest/globals'
import { summaryOf } from '../../workflows/summaries.ts'

// What the Temporal UI shows beside each activity.

const id = '0199aabb-0000-7000-8000-000000000001'

const of = (
  activityType: string,
  args: unknown[],
  options: Parameters<typeof summaryOf>[0]['options'] = {},
) => summaryOf({ activityType, args, options })

test('an activity’s summary says what is done to which thing', () => {
  expect(of('placeInstance', ['container', 'c-1'])).toBe('Find a host for container c-1')
  expect(of('operationFailed', ['o-1', 'failed', { code: 'no_capacity' }, null])).toBe(
    'Record that operation o-1 failed: no_capacity',
  )
})

test('an activity without words of its own is called by its name, with an id and never with another value', () => {
  expect(of('resizeDiskCacheOnHost', [id, 3], { taskQueue: 'host-h-2' })).toBe(
    `Resize disk cache ${id} on host h-2`,
  )
  expect(of('makeCache', [{ id, name: 'a tenant’s' }])).toBe(`Make cache ${id}`)
  expect(of('tidyCaches', ['a tenant’s'])).toBe('Tidy caches')
})

test('what runs on a host names it', () => {
  expect(of('runContainerOnHost', [{ id, image: 'x' }, 'o-1'], { taskQueue: 'host-h-2' })).toBe(
    `Run container ${id} on host h-2`,
  )
  expect(of('gatherAiItems', [{}, 'each', 3], { taskQueue: 'platform' })).toBe('Gather the 3 items of each')
})

test('the words of the caller come first', () => {
  expect(of('runNodeOnRunner', ['r-1', 'find'], { summary: 'find → output', taskQueue: 'runner-d-1' })).toBe(
    'find → output',
  )
})

test('a summary is not longer than Temporal takes, and still names its host', () => {
  const summary = of('pullImageOnHost', ['x'.repeat(500), null], { taskQueue: 'host-h-2' })
  expect(summary).toMatch(/^Pull image x+ … on host h-2$/)
  expect(summary.length).toBeLessThanOrEqual(202)
})
