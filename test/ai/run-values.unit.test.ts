import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { bucketOf, buckets } from '../../lib/ai/canary.ts'
import { needValue, readValue, storeValue } from '../../models/ai/run-values.ts'

// The values of runs, and the buckets by which a canary will take some of them.

const nested = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`

describe('a value of a run', () => {
  test('is any JSON of 8 MiB and 64 levels', () => {
    for (const json of ['null', '0', '"x"', nested(64), JSON.stringify('x'.repeat(8 * 1024 ** 2 - 2))])
      expect(() => needValue(json)).not.toThrow()
  })

  test.each([
    ['no JSON', '{"a":}', 'no_json'],
    ['two values', '1 2', 'no_json'],
    ['a text of more bytes', JSON.stringify('x'.repeat(8 * 1024 ** 2)), 'too_large'],
    ['a text of more bytes than characters', JSON.stringify('ä'.repeat(4 * 1024 ** 2)), 'too_large'],
    ['deeper', nested(65), 'too_large'],
    ['far deeper', nested(1_000_000), 'too_large'],
  ])('is not %s', (_, json, code) => {
    expect(() => needValue(json)).toThrow(expect.objectContaining({ code, status: 422 }))
  })

  test('of up to 64 KiB is kept as it is', async () => {
    const most = JSON.stringify('x'.repeat(64 * 1024 - 2))
    expect(await storeValue(most)).toEqual({ bytes: 64 * 1024, json: most, blob: null })
    await fc.assert(
      fc.asyncProperty(fc.json(), async (json) => {
        const stored = await storeValue(json)
        expect(stored).toEqual({ bytes: Buffer.byteLength(json), json, blob: null })
        expect(await readValue(stored)).toBe(json)
      }),
    )
  })
})

describe('the bucket of a run', () => {
  test('is the same for the same workflow and key, and another for others', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (workflow, key) => {
        const bucket = bucketOf(workflow, key)
        expect(bucketOf(workflow, key)).toBe(bucket)
        expect(Number.isInteger(bucket) && bucket >= 0 && bucket < buckets).toBe(true)
      }),
    )
  })

  test('is spread evenly over keys', () => {
    const tenth = Array.from({ length: 10_000 }, (_, at) => bucketOf('workflow', `key ${at}`)).filter(
      (bucket) => bucket < buckets / 10,
    )
    expect(Math.abs(tenth.length - 1_000)).toBeLessThan(100)
  })
})
