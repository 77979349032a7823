import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { afterEach, beforeAll, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { buildLines } from '../../api/deploy/build-lines.ts'
import { keepLogPart } from '../../models/deploy/build-logs.ts'
import type { BuildDocument } from '../../models/deploy/builds.ts'
import { newId } from '../../lib/ids.ts'
import { makeTenant } from '../support/tenants.ts'

// The log of a build that is only parts of a log.

let build: BuildDocument
const parts = 20
const [first, second] = [newId(), newId()].toSorted()
const perPart = 10

beforeAll(async () => {
  const tenant = await makeTenant()
  build = { _id: newId(), tenant_id: tenant.id } as BuildDocument
  for (const attempt of [first, second])
    for (let part = 0; part < parts; part++) {
      const lines = Array.from({ length: perPart }, (_, at) => ({
        time: new Date(Date.UTC(2026, 0, 1, attempt === first ? 0 : 1, part, at)).toISOString(),
        line: `${attempt === first ? 'a' : 'b'}${part * perPart + at} `.padEnd(2000, '.'),
      }))
      await keepLogPart(build, { attempt: attempt ?? '', part, total: (part + 1) * perPart, lines })
    }
})
afterEach(() => void mongoose.set('debug', false))

const open = (query: { lines?: number; since?: string; follow?: boolean }) =>
  buildLines(build, { follow: false, ...query }, new AbortController().signal)

async function read(query: Parameters<typeof open>[0]): Promise<string[]> {
  const lines = (await text(open(query))).split('\n').filter(Boolean)
  return lines.map((line) => (JSON.parse(line) as { line: string }).line.trim().replace(/ ?\.+$/, ''))
}

const named = (name: string, from: number, to = parts * perPart): string[] =>
  Array.from({ length: to - from }, (_, at) => `${name}${from + at}`)

test('a log has the lines of all attempts, or the last ones', async () => {
  expect(await read({})).toEqual([...named('a', 0), ...named('b', 0)])
  expect(await read({ follow: true, lines: 3 })).toEqual(named('b', 197))
  expect(await read({ lines: 25 })).toEqual(named('b', 175))
  expect(await read({ lines: 10 })).toEqual(named('b', 190))
  expect(await read({ lines: 203 })).toEqual([...named('a', 197), ...named('b', 0)])
  expect(await read({ lines: 100_000 })).toHaveLength(400)
  expect(await read({ lines: 0 })).toEqual([])
  expect(await read({ since: '2026-01-01T01:19:05Z' })).toEqual(named('b', 195))
  expect(await read({ since: '2026-01-01T01:19:05Z', lines: 2 })).toEqual(named('b', 198))
})

test.each([{}, { lines: 350 }])('a slow reader holds a small part of a log: %j', async (query) => {
  let found = 0
  mongoose.set('debug', (collection: string, method: string) => {
    if (collection === 'build_log_parts' && method === 'findOne') found++
  })
  const lines = open(query)
  await once(lines, 'readable')
  // What its buffer takes: 64 KiB, of parts of 20 KB.
  expect(found).toBeLessThan(6)
  const before = found
  await text(lines)
  expect(found).toBeGreaterThan(before)
})
