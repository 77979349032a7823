import { spawnSync } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { extract } from 'tar-stream'
import { compared, parseBase, parseCounts, sumOf } from '../../activities/host/backup-counts.ts'
import { damagedIn, storedSegment, tarOfSegments } from '../../activities/host/backup-segments.ts'
import { segmentBytes, segmentsBetween } from '../../lib/archive-protocol.ts'
import { engines } from '../../models/deploy/engines/index.ts'
import { saidIn } from '../../worker/host/database-archiver.ts'

const named = (number: string) => `0000000100000000${number.padStart(8, '0')}`

test('segments follow on each other, also from one log to the next', () => {
  const first = named('FE')
  expect(segmentsBetween(first, '000000010000000100000001')).toEqual([
    first,
    named('FF'),
    '000000010000000100000000',
    '000000010000000100000001',
  ])
  expect(segmentsBetween(first, first)).toEqual([first])
  expect(segmentsBetween(first, named('FD'))).toEqual([])
  expect(segmentsBetween(first, first.replace('00000001', '00000002'))).toEqual([])
})

test('what an engine says of its log is understood', () => {
  const moment = '2026-01-02T03:04:05.678Z'
  expect(saidIn('lost\n')).toEqual({ state: 'lost' })
  expect(saidIn(`gap ${named('1')}\n`)).toEqual({ state: 'gap', segment: named('1') })
  expect(saidIn(`idle ${moment}\n`)).toEqual({ state: 'idle', at: moment })
  expect(saidIn(`segment ${named('1')} -\nsegment ${named('2')} ${moment}\nsegment x;rm -\n`)).toEqual({
    state: 'segments',
    segments: [
      { name: named('1'), ticked_at: null },
      { name: named('2'), ticked_at: moment },
    ],
  })
  expect(saidIn('')).toEqual({ state: 'segments', segments: [] })
})

const found = (rows: number) =>
  new Map([
    ['app.public.rows', rows],
    ['app.public.new', 1],
  ])

describe('a base', () => {
  const said = `base ${named('4')} 2026-01-02T03:04:05.678Z a1\ncount 3 - app.public.rows\ncount 0 - app.public.more\n`

  test('says where its log begins, and the least that it has', () => {
    expect(parseBase(said)).toEqual({
      start: named('4'),
      moment: '2026-01-02T03:04:05.678Z',
      archive_id: 'a1',
    })
    expect(parseBase('count 1 1 x')).toBeNull()
    expect(sumOf('reading', parseCounts(said)).rows).toBe(3)
  })

  test('may have more rows and tables than that, and not fewer', () => {
    const counts = parseCounts(said)
    expect(compared(counts, found(5)).rows).toBe(6)
    expect(() => compared(counts, found(2))).toThrow('app.public.rows has 2 rows')
    expect(() => compared(counts, new Map())).toThrow('app.public.rows is missing')
  })
})

const plain = (name: string) => Buffer.alloc(segmentBytes, name)

describe('segments', () => {
  const key = Buffer.alloc(32, 7).toString('base64')
  const names = segmentsBetween(named('1'), named('3'))
  const log = { archive_id: 'a1', key, segments: names, target: null }
  const stored = (name: string) => storedSegment({ id: 'a1', key }, name, plain(name))
  const fetch = async (name: string) => Readable.from([await stored(name)])

  test('come as one tar', async () => {
    const entries = extract()
    const seen: string[] = []
    const writing = pipeline(Readable.from(tarOfSegments(log, fetch)), entries)
    for await (const entry of entries) {
      const { name } = entry.header
      seen.push((await buffer(entry)).equals(plain(name)) ? name : `${name} differs`)
    }
    await writing
    expect(seen).toEqual(names)
  })

  test('that were changed, moved or removed are found', async () => {
    expect(await damagedIn(log, fetch)).toEqual([])
    const missing = Object.assign(new Error('gone'), { code: 'part_missing' })
    const others: ((name: string) => Promise<Readable>)[] = [
      () => fetch(named('9')),
      () => Promise.reject(missing),
      async (name) => Readable.from([(await stored(name)).fill(0, 100, 101)]),
    ]
    for (const other of others)
      expect(await damagedIn(log, (name) => (name === names[1] ? other(name) : fetch(name)))).toEqual([
        names[1],
      ])
    expect(await damagedIn(log, () => Promise.reject(missing))).toEqual(names)
    await expect(damagedIn(log, () => Promise.reject(new Error('away')))).rejects.toThrow('away')
  })
})

describe('the command with which an engine archives', () => {
  const spool = 'pgsql_tmp_keelson'
  let volume: string

  beforeEach(async () => {
    volume = await mkdtemp(join(tmpdir(), 'volume-'))
    await mkdir(join(volume, 'pg_wal/archive_status'), { recursive: true })
  })
  afterEach(() => rm(volume, { recursive: true }))

  const open = async () => {
    await mkdir(join(volume, spool, 'segments'), { recursive: true })
    await writeFile(join(volume, spool, 'archive'), 'a1')
  }

  /** Has the engine archive a file. Returns the exit code: the engine keeps the file unless that is 0. */
  async function archive(name: string): Promise<number | null> {
    await writeFile(join(volume, 'pg_wal', name), `content of ${name}`)
    const option = engines.postgresql.archive?.options.at(-1) ?? ''
    const command = option
      .slice('archive_command='.length)
      .replaceAll('%p', `pg_wal/${name}`)
      .replaceAll('%f', name)
    return spawnSync('/bin/sh', ['-c', command], { cwd: volume }).status
  }
  const spooled = () => readdir(join(volume, spool, 'segments'))
  const fill = (folder: string, count: number, ending = '') =>
    Promise.all(
      Array.from({ length: count }, (_, i) =>
        writeFile(join(volume, folder, `${named((0xa0 + i).toString(16).toUpperCase())}${ending}`), ''),
      ),
    )

  test('does nothing without an archive', async () => {
    expect(await archive(named('1'))).toBe(0)
    expect(await readdir(volume)).toEqual(['pg_wal'])
  })

  test('copies whole segments, and nothing else', async () => {
    await open()
    for (const name of [named('1'), '00000002.history', `${named('1')}.00000028.backup`])
      expect(await archive(name)).toBe(0)
    expect(await spooled()).toEqual([named('1')])
    const copied = await readFile(join(volume, spool, 'segments', named('1')), 'utf8')
    expect(copied).toBe(`content of ${named('1')}`)
  })

  test('has the engine keep what does not fit, up to a bound, and then lets all go', async () => {
    await open()
    await fill(`${spool}/segments`, 32)
    await fill('pg_wal/archive_status', 128, '.ready')
    expect(await archive(named('1'))).toBe(1)
    await fill('pg_wal/archive_status', 129, '.ready')
    expect(await archive(named('2'))).toBe(0)
    expect(await readFile(join(volume, spool, 'gap'), 'utf8')).toBe(`${named('2')}\n`)
    expect(await archive(named('3'))).toBe(0)
    expect(await spooled()).toHaveLength(32)
  })
})
