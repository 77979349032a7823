import { afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { UnwantedBlob } from '../../models/blobs.ts'
import { LogArchive, LogPiece } from '../../models/compute/log-archive.ts'
import { testDrawn } from '../support/drawn.ts'
import { isLong } from '../support/long.ts'
import { shell } from '../support/client.ts'
import { docker, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { execInside } from '../support/inside.ts'
import {
  archived,
  askArchive,
  faultIn,
  hasMore,
  numbers,
  piecesOf,
  upTo,
  writer,
  writerBy,
  writing,
} from '../support/log-archive.ts'
import { platform, startAll } from '../support/platform.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// A container's whole output is kept, once and in order, with any cap and if any process is killed.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
afterEach(startAll)

const lines = isLong ? 1_000_000 : 100_000

const isStopped = (id: string) =>
  eventually(async () => (await tenant.containers.get(id)).status === 'stopped')
const countOf = async (id: string) => (await piecesOf(id)).length
/** Resolves when the platform has read that many lines. */
const hasWritten = (id: string, count: number) =>
  eventually(async () => (await archived(tenant.owner, id)).length === count)

/** Where a script waits until it is told to go on. */
const toldTo = (go: string): string => `until [ -e /${go} ]; do sleep 0.1; done`
const tellTo = async (go: string, id: string): Promise<void> => {
  const { code } = await execInside(docker.getContainer((await engine.only(id)).Id), ['touch', `/${go}`])
  expect(code).toBe(0)
}
/** Writes `lines` lines, a part of them at a time: each further part when it is told to. */
const writerToldTo = (...each: string[]) => {
  const from = (part: number): number => Math.floor((lines * part) / (each.length + 1)) + 1
  const parts = each.map((go, i) => `${toldTo(go)}; ${writing(from(i + 1), from(i + 2) - 1)}`)
  return writerBy([writing(1, from(1) - 1), ...parts].join('; '))
}

describe('with a container that writes at full speed, capped at 1 MiB, the archive has each line once and in order', () => {
  test('while the container’s host worker is killed twice', async () => {
    const twice = ['go-on', 'go-on-again']
    const { id } = await tenant.containers.make({ ...writerToldTo(...twice), restart_policy: 'never' })
    let count = 0
    for (const go of twice) {
      await hasMore(id, count)
      await platform.kill('host')
      count = await countOf(id)
      await tellTo(go, id)
      await platform.start('host')
    }
    await isStopped(id)
    expect((await piecesOf(id)).some(({ after_gap }) => after_gap)).toBe(false)
    expect(faultIn(await archived(tenant.owner, id), lines)).toBeNull()
  })

  testDrawn('while the API is away, and then MongoDB', async () => {
    const { id } = await tenant.containers.make({ ...writerToldTo('go-on'), restart_policy: 'never' })
    await hasMore(id, 0)
    await platform.kill('api')
    const count = await countOf(id)
    await tellTo('go-on', id)
    await eventually(async () => (await engine.only(id)).State.Status === 'exited')
    await platform.start('api')
    await hasMore(id, count)
    await platform.kill('mongodb')
    await platform.start('mongodb')
    await isStopped(id)
    expect(faultIn(await archived(tenant.owner, id), lines)).toBeNull()
  })

  testDrawn('while it is read repeatedly', async () => {
    const { id } = await tenant.containers.make({ ...writer(lines), restart_policy: 'never' })
    for (let read = 0; read < 5; read++) {
      const all = await archived(tenant.owner, id)
      expect(faultIn(all, all.length)).toBeNull()
    }
    await isStopped(id)
    expect(faultIn(await archived(tenant.owner, id), lines)).toBeNull()
  })

  testDrawn('across a restart on the engine, a stop and a start, and a recreation', async () => {
    const count = 20_000
    const { id } = await tenant.containers.make(writer(count, 'sleep 600'))
    await hasWritten(id, count)
    const first = (await engine.only(id)).Id
    await docker.getContainer(first).restart({ t: 0 })
    await hasWritten(id, 2 * count)
    await (await tenant.containers.stop(id)).operation.success()
    await (await tenant.containers.start(id)).operation.success()
    await hasWritten(id, 3 * count)
    await (await tenant.containers.stop(id)).operation.success()
    await (
      await tenant.containers.update(id, { command: writer(count / 2, 'sleep 600').command })
    ).operation.success()
    await (await tenant.containers.start(id)).operation.success()
    expect((await engine.only(id)).Id).not.toBe(first)
    const life = upTo(count)
    const all = [...life, ...life, ...life, ...upTo(count / 2)]
    await eventually(async () => (await archived(tenant.owner, id)).length >= all.length)
    expect(numbers((await archived(tenant.owner, id)).slice(0, all.length))).toEqual(all)
  })
})

describe('the archived output', () => {
  test('equals what was written: long lines, both streams, any character, a last line without a newline', async () => {
    const { id } = await tenant.containers.make({
      ...shell(`awk 'BEGIN { printf "%0100000d\\n", 7 }'; echo grüße 👋; echo oops >&2; printf 'no end'`),
      restart_policy: 'never',
    })
    await isStopped(id)
    const all = await archived(tenant.owner, id)
    expect(all.toSorted()).toEqual([`${'0'.repeat(99_999)}7`, 'grüße 👋', 'no end', 'oops'].toSorted())
  })

  test('is compressed on request, with the same content', async () => {
    const { id } = await tenant.containers.make({ ...writer(20_000), restart_policy: 'never' })
    await isStopped(id)
    const plain = await askArchive(tenant.owner, id)
    expect(plain.headers).toMatchObject({
      'content-type': 'text/plain; charset=utf-8',
      vary: expect.stringContaining('Accept-Encoding'),
    })
    expect(plain.headers['content-encoding']).toBeUndefined()
    for await (const _ of plain.lines) {
    }
    const compressed = await askArchive(tenant.owner, id, { gzip: true })
    expect(compressed.headers['content-encoding']).toBe('gzip')
    const all: string[] = []
    for await (const line of compressed.lines) all.push(line)
    expect(faultIn(all, 20_000)).toBeNull()
  })

  test('names what is missing while the host is away, and is complete when it is back', async () => {
    const { id } = await tenant.containers.make({ ...writer(20_000), restart_policy: 'never' })
    await isStopped(id)
    await platform.kill('host')
    const answer = await askArchive(tenant.owner, id)
    const all: string[] = []
    for await (const line of answer.lines) all.push(line)
    expect(all.pop()).toMatch(/^\[keelson: output is missing here: /)
    expect(answer.complete()).toBe('false')
    expect(faultIn(all, all.length)).toBeNull()
    expect(all.length).toBeLessThan(20_000)
    await platform.start('host')
    expect(faultIn(await archived(tenant.owner, id), 20_000)).toBeNull()
  })

  test('names where output was dropped because the host worker’s backlog was full, as does the feed', async () => {
    // A million lines are some 190 MiB in the engine's files; the stack's hosts hold back 512 MiB in the long form,
    // else 96.
    const tooMany = lines === 1_000_000 ? 4_000_000 : 700_000
    const { id } = await tenant.containers.make(
      writerBy(`${toldTo('begin')}; ${writing(1, tooMany)}; sleep 600`),
    )
    await platform.kill('host')
    await tellTo('begin', id)
    const container = docker.getContainer((await engine.only(id)).Id)
    const lastLine = async () => String(await container.logs({ stdout: true, tail: 1 }))
    await eventually(async () => (await lastLine()).includes(`${tooMany} `))
    await platform.start('host')
    await hasMore(id, 0)
    const all = await eventually(async () => {
      const { lines: read, complete } = await askArchive(tenant.owner, id)
      const found: string[] = []
      for await (const line of read) found.push(line)
      return complete() === 'false' && found.some((line) => line.startsWith('[keelson: ')) && found
    })
    expect(all[0]).toMatch(/^\[keelson: output may be missing here: /)
    const rest = numbers(all.filter((line) => !line.startsWith('[keelson: ')))
    expect(rest.length).toBeGreaterThan(tooMany / 2)
    expect(rest).toEqual(upTo(tooMany).slice(-rest.length))
    expect(await tenant.containers.activity(id)).toContainEqual(
      expect.objectContaining({ kind: 'output_dropped' }),
    )
  })
})

const blobKeys = async (id: string) => (await piecesOf(id)).map(({ blob }) => blob.key)
const stored = (keys: string[]): Promise<number> =>
  mongoose.connection.collection('blobs.files').countDocuments({ _id: { $in: keys as never[] } })

describe('the stored output', () => {
  test('is not readable in the database', async () => {
    const { id } = await tenant.containers.make({
      ...shell(`awk 'BEGIN { for (i = 0; i < 20000; i++) print "the secret word is mellon", i }'; sleep 600`),
      log_cap_mib: 1,
    })
    await hasMore(id, 0)
    const [key = ''] = await blobKeys(id)
    const chunks = mongoose.connection.collection<{ files_id: string; data: mongoose.mongo.Binary }>(
      'blobs.chunks',
    )
    const chunk = await chunks.findOne({ files_id: key })
    const bytes = Buffer.from(chunk?.data.value() ?? [])
    expect(bytes.length).toBeGreaterThan(1000)
    expect(bytes.subarray(0, 2)).not.toEqual(Buffer.from([0x1f, 0x8b])) // gzip's own first bytes
    expect(bytes.includes('mellon')).toBe(false)
  })

  test('is deleted with its container, on the host and in the archive', async () => {
    const { id } = await tenant.containers.make(writer(50_000, 'sleep 600'))
    await hasWritten(id, 50_000)
    await hasMore(id, 5)
    const keys = await blobKeys(id)
    expect(await stored(keys)).toBe(keys.length)
    const { Id } = await engine.only(id)
    await (await tenant.containers.delete(id)).operation.success()
    expect(await piecesOf(id)).toEqual([])
    expect(await LogArchive.countDocuments({ _id: id, tenant_id: tenant.id })).toBe(0)
    await eventually(async () => (await stored(keys)) === 0)
    const chunks = mongoose.connection.collection('blobs.chunks')
    await eventually(async () => (await chunks.countDocuments({ files_id: { $in: keys as never[] } })) === 0)
    await eventually(async () => (await UnwantedBlob.countDocuments({ _id: { $in: keys } })) === 0)
    await expect(docker.getContainer(Id).inspect()).rejects.toMatchObject({ statusCode: 404 })
    expect(await askArchive(tenant.owner, id)).toMatchObject({ status: 404 })
  })

  test('is kept for the configured days and size; the oldest goes first', async () => {
    const { id } = await tenant.containers.make(writer(50_000, 'sleep 600'))
    await hasWritten(id, 50_000)
    await hasMore(id, 14) // of 20 files of 0.5 MiB
    await platform.kill('host') // so that no further piece comes
    const pieces = await piecesOf(id)
    const ids = pieces.map(({ _id }) => _id)
    const areLeft = async (from: number) => {
      const left = (await piecesOf(id)).map(({ _id }) => _id)
      return left.includes(ids[from] ?? '') && left[0] === ids[from]
    }
    await LogPiece.collection.updateMany(
      { _id: { $in: ids.slice(0, 2) as never[] } },
      { $set: { created_at: new Date(Date.now() - 31 * 86_400_000) } },
    )
    await eventually(() => areLeft(2))

    // Set the cap so that exactly the next two pieces are beyond it.
    const more = pieces.slice(2, 4).reduce((sum, { stored_bytes }) => sum + stored_bytes, 0)
    await LogArchive.updateOne(
      { _id: id, tenant_id: tenant.id },
      { $set: { stored_bytes: 10_240 * 2 ** 20 + more } },
    )
    await eventually(() => areLeft(4))
    await platform.start('host')
    const rest = numbers(await archived(tenant.owner, id))
    expect(rest).toEqual(upTo(50_000).slice(-rest.length))
  })
})
