import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import type { FoundContainer } from '../../../drivers/containers.ts'
import { type HostLayers, nextLookMs, openHostLayers } from '../../../drivers/docker/host-layers.ts'
import { publishText } from '../../../drivers/system/files.ts'

const mebibyte = 1024 ** 2
const gibibyte = 1024 ** 3

const running = (id: string): FoundContainer => ({
  kind: 'container',
  id,
  engine_id: `engine-${id}`,
  state: 'running',
  exit_code: null,
  oom_killed: false,
  restart_count: 0,
  started_at: '2026-01-01T00:00:00.000Z',
  pid: null,
  health: 'none',
  image_digest: '',
  ports: [],
})

describe('the next look at a container', () => {
  const disk = { bytesPerSec: 256 * mebibyte, tookMs: 10 }
  test.each([
    ['as soon as it can have written the rest', { ...disk, restBytes: 5 * gibibyte }, 20_000],
    ['after a minute at most', { ...disk, restBytes: 900 * gibibyte }, 60_000],
    ['after five seconds at least', { ...disk, restBytes: 1 }, 5_000],
    ['after ten times as long as it took', { ...disk, restBytes: 1, tookMs: 9_000 }, 90_000],
    ['at 1 GiB/s without a limit', { ...disk, bytesPerSec: null, restBytes: 8 * gibibyte }, 8_000],
  ])('is %s', (_, look, ms) => {
    expect(nextLookMs(look)).toBe(ms)
  })
})

describe('what a host knows of limits', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'keelson-layers-'))
  })
  afterEach(() => rm(folder, { recursive: true }))

  // Without an engine: whatever asks it fails.
  const opened = (): Promise<HostLayers> =>
    openHostLayers({ hostId: 'host', dockerHost: 'http://127.0.0.1:1', folder, bytesPerSec: null })
  const { signal } = new AbortController()
  const fullOf = async (layers: HostLayers, ...ids: string[]): Promise<string[]> =>
    (await layers.look(ids.map(running), signal)).map(({ id }) => id)

  test('goes with the container, and a container without a limit has none', async () => {
    const layers = await opened()
    await layers.start('one', 1)
    await layers.start('machine', null)
    expect(await readdir(folder)).toEqual(['one.json'])
    await layers.forget('one')
    await layers.forget('never-there')
    expect(await readdir(folder)).toEqual([])
  })

  test('outlives its program: a container that was to be stopped is, without another look', async () => {
    await (await opened()).start('fine', 1)
    // As a host leaves it that was killed between the record and the stop.
    await publishText(join(folder, 'full.json'), JSON.stringify({ limit_bytes: gibibyte, full: true }))
    const layers = await opened()
    expect([layers.isFull('full'), layers.isFull('fine')]).toEqual([true, false])
    expect(await fullOf(layers, 'full', 'fine', 'unknown')).toEqual(['full'])
    expect(await fullOf(layers, 'fine')).toEqual([])
  })

  test('a new size does not call off the stop; the next start does', async () => {
    await publishText(join(folder, 'full.json'), JSON.stringify({ limit_bytes: gibibyte, full: true }))
    const layers = await opened()
    await layers.resize('full', 5)
    expect(await fullOf(layers, 'full')).toEqual(['full'])
    await layers.start('full', 5)
    expect(await fullOf(layers, 'full')).toEqual([])
    expect((await opened()).isFull('full')).toBe(false)
  })
})
