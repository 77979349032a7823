import { describe, expect, test } from '@jest/globals'
import { gunzipSync } from 'node:zlib'
import { pino } from 'pino'
import type { LogFile, LogFiles, LogSource } from '../../drivers/log-files.ts'
import type { LogPiece } from '../../lib/host-protocol.ts'
import { PlatformFault } from '../../worker/platform-fault.ts'
import { makeLogShipper } from '../../worker/host/log-shipper.ts'

// Output while the platform's store is full: of what runs it stays on the host, of what goes it is told to be missing.

const source: LogSource = {
  id: 'one',
  engine_id: 'engine',
  engine_created_at: '2026-01-01T00:00:00Z',
  path: '/nowhere',
  kept_files: 1,
  most_files: 9,
}
const line = Buffer.from('a line\n')

function shipping(send: (piece: LogPiece, text: string) => number | null, content: Buffer = line) {
  const left = new Set(['first', 'second'])
  const fileOf = (key: string): LogFile => ({
    key,
    bytes: content.length,
    after_gap: false,
    read: (from, bytes) => content.subarray(from, from + bytes),
    drop: () => left.delete(key),
    close: () => {},
  })
  const files: LogFiles = {
    sourceOf: async () => source,
    hasFull: () => left.size > 0,
    isOverCap: () => left.size > 0,
    open: () => [...left].map(fileOf),
  }
  const shipper = makeLogShipper({
    files,
    send: async (_, piece, body) => send(piece, gunzipSync(body).toString()),
    log: pino({ level: 'silent' }),
  })
  return { left, shipper }
}

const full = () => new PlatformFault(503, 'store_full', 'The platform’s API refused: the store is full')

describe('while the store is full', () => {
  test('the output of a running instance stays on the host, and is archived when there is room', async () => {
    const stopping = new AbortController()
    let tries = 0
    const { left, shipper } = shipping((piece, text) => {
      if (++tries === 1) throw full()
      if (tries === 2) expect([...left]).toEqual(['first', 'second'])
      expect(text).toBe(String(line))
      if (tries === 3) stopping.abort()
      return piece.from + piece.bytes
    })
    await shipper.keep(() => [{ id: source.id, engine_id: source.engine_id }], stopping.signal)
    expect(left.size).toBe(0)
  })

  test('an ended instance is let go: the archive gets a gap in place of its output', async () => {
    const kept: [file: string, after_gap: string, text: string][] = []
    const { shipper } = shipping((piece, text) => {
      if (text) throw full()
      kept.push([piece.file, piece.after_gap, text])
      return piece.from + piece.bytes
    })
    await shipper.shipAll(source.id)
    expect(kept).toEqual([
      ['first', 'true', ''],
      ['second', 'true', ''],
    ])
  })

  test('any other refusal keeps the output', async () => {
    const { shipper } = shipping(() => {
      throw new PlatformFault(503, 'unavailable', 'The platform’s API refused')
    })
    await expect(shipper.shipAll(source.id)).rejects.toMatchObject({ code: 'unavailable' })
  })
})

const entry = (log: string) => `{"log":"${log}\\n","stream":"stdout","time":"2026-01-01T00:00:00Z"}\n`

/** The pieces that the archive gets of a file with this content. */
async function sentOf(content: string) {
  const kept: [text: string, after_gap: string, bytes: number][] = []
  const { shipper } = shipping((piece, text) => {
    if (piece.file === 'first') kept.push([text, piece.after_gap, piece.bytes])
    return piece.from + piece.bytes
  }, Buffer.from(content))
  await shipper.shipAll(source.id)
  return kept
}

describe('where the engine’s disk was full', () => {
  const torn = entry('lost').slice(0, 12)
  const after = entry('after')

  test('the archive gets a gap in place of the torn entry, and what stands before and after it', async () => {
    const before = entry('before {\\"log\\":\\"')
    expect(await sentOf(before + torn + after)).toEqual([
      [before, 'false', before.length],
      ['', 'true', torn.length],
      [after, 'false', after.length],
    ])
  })

  test('so at the beginning of a file, and for each torn entry', async () => {
    expect(await sentOf(torn + after + torn + after)).toEqual([
      ['', 'true', torn.length],
      [after, 'false', after.length],
      ['', 'true', torn.length],
      [after, 'false', after.length],
    ])
  })
})
