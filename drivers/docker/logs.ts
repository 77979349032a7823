import type { Readable } from 'node:stream'
import type Docker from 'dockerode'
import type { LogEntry, LogOptions } from '../containers.ts'
import { startsAgain } from './events.ts'
import { openStream } from './streams.ts'
import { engineTime, exactTime } from '../system/times.ts'

/** Splits longer lines, to bound a reader's memory. */
const maxLineBytes = 64 * 1024

/**
 * The lines of one container, in the engine's order. With `follow`, continues after restarts until the container is
 * removed; without `restarts`, until it stops. Data is fetched only as it is read, so a slow reader does not grow this process.
 */
export async function* readLogs(
  docker: Docker,
  engineId: string,
  { lines, since, follow = false, signal }: LogOptions,
  { restarts = true }: { restarts?: boolean } = {},
): AsyncGenerator<LogEntry> {
  const from = since === undefined ? '' : exactTime(since)
  const opened = exactTime(new Date().toISOString())
  let after = '' // set when the first answer has ended: entries up to this time are already read
  let last = ''
  for (;;) {
    const query = {
      stdout: true,
      stderr: true,
      timestamps: true,
      follow,
      // The engine's `tail` counts 16 KiB parts of long lines, not lines.
      tail: after === '' && lines !== undefined ? lines : 'all',
      ...(after || from ? { since: engineTime(after || from) } : {}),
    }
    const stream = await openStream(docker, 'GET', `/containers/${engineId}/logs`, query, signal)
    for await (const entry of entries(stream)) {
      if (entry.time < from || entry.time <= after) continue
      yield entry
      if (entry.time > last) last = entry.time
    }
    // The engine ends its answer when the container stops.
    if (!follow || !restarts || !(await startsAgain(docker, engineId, signal))) return
    after = last || opened
  }
}

/** Joins the parts of lines that the engine split. A line has the time of its first part. */
async function* entries(stream: Readable): AsyncGenerator<LogEntry> {
  const open: Partial<Record<LogEntry['stream'], { time: string; parts: Buffer[]; bytes: number }>> = {}
  for await (const { name, payload } of frames(stream)) {
    const space = payload.indexOf(0x20)
    const text = payload.subarray(space + 1)
    const whole = text.at(-1) === 0x0a
    const line = (open[name] ??= { time: payload.toString('latin1', 0, space), parts: [], bytes: 0 })
    line.parts.push(whole ? text.subarray(0, -1) : text)
    line.bytes += text.length
    if (!whole && line.bytes < maxLineBytes) continue
    yield toEntry(name, line)
    delete open[name]
  }
  for (const name of ['stdout', 'stderr'] as const) if (open[name]) yield toEntry(name, open[name])
}

const toEntry = (stream: LogEntry['stream'], line: { time: string; parts: Buffer[] }): LogEntry => ({
  time: line.time,
  stream,
  line: Buffer.concat(line.parts).toString(),
})

// Each frame: the stream's number, three zeros, the payload's length (big-endian), the payload.
const headerBytes = 8

async function* frames(stream: Readable): AsyncGenerator<{ name: LogEntry['stream']; payload: Buffer }> {
  let buffer: Buffer = Buffer.alloc(0)
  for await (const chunk of stream) {
    buffer = Buffer.concat([buffer, chunk])
    let at = 0
    while (buffer.length - at >= headerBytes) {
      const end = at + headerBytes + buffer.readUInt32BE(at + 4)
      if (buffer.length < end) break
      yield { name: buffer[at] === 2 ? 'stderr' : 'stdout', payload: buffer.subarray(at + headerBytes, end) }
      at = end
    }
    buffer = buffer.subarray(at)
  }
}
