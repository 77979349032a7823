import { existsSync, statSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { lastLinesBytes, LastKept } from '../../lib/last-kept.ts'
import type { LogEntry, LogOptions } from '../containers.ts'
import type { LogFile, LogSource } from '../log-files.ts'
import { openFiles } from './log-files.ts'
import type { LogLine } from './log-writer.ts'
import { exactTime } from './times.ts'

// Reads log files in the format of the Docker Engine's `json-file` driver, as lines.

/** The fields that a reader needs. */
export type Part = Pick<LogLine, 'log' | 'stream' | 'time'>

const lookEveryMs = 200
// While it is rotated, the file is absent for a moment.
const goneAfterMs = 5_000

/** Yields the lines of a log that another process writes. With `follow`, until the log is removed. */
export async function* readLogFiles(
  source: LogSource,
  { lines, since, follow = false, signal }: LogOptions,
): AsyncGenerator<LogEntry> {
  const from = since === undefined ? '' : exactTime(since)
  const unread = makeUnread(source)
  const first = unread(from)
  yield* lines === undefined ? first : lastOfAll(first, lines)
  if (!follow) return
  for (let seenAt = Date.now(); Date.now() - seenAt < goneAfterMs; ) {
    await waited(lookEveryMs, signal)
    if (signal?.aborted) return
    if (existsSync(source.path)) seenAt = Date.now()
    yield* unread(from)
  }
}

/** Each call reads what has been written since the last one. */
function makeUnread(source: LogSource): (from: string) => AsyncGenerator<LogEntry> {
  const whole = makeJoiner()
  let at = { key: '', offset: 0 }
  let sign = ''
  return async function* (from) {
    const now = signOf(source.path)
    if (now === sign) return
    sign = now
    const files = openFiles(source, 'all')
    try {
      // If the file is gone, all others are newer.
      const known = files.findIndex(({ key }) => key === at.key)
      for (const file of files.slice(Math.max(0, known))) {
        if (file.bytes === 0) continue
        const begin = file.key === at.key ? at.offset : 0
        for (const part of entriesOf(file, begin)) {
          const entry = whole(part)
          if (entry && entry.time >= from) yield entry
        }
        at = { key: file.key, offset: file.bytes }
      }
    } finally {
      for (const file of files) file.close()
    }
  }
}

/** Changes with every line. */
function signOf(path: string): string {
  const { ino, size } = statSync(path, { throwIfNoEntry: false }) ?? { ino: 0, size: 0 }
  return `${ino} ${size}`
}

export const waited = (ms: number, signal: AbortSignal | undefined): Promise<void> =>
  delay(ms, undefined, signal ? { signal } : {}).catch(() => {})

export async function* lastOfAll(
  entries: AsyncIterable<LogEntry>,
  count: number,
  bytes = lastLinesBytes,
): AsyncGenerator<LogEntry> {
  const kept = new LastKept<LogEntry>({ count, bytes }, ({ line }) => Buffer.byteLength(line))
  for await (const entry of entries) kept.add(entry)
  yield* kept.taken()
}

/** Reads all files. Joins the parts of a line into one entry with the time of the first. */
export async function* linesIn(
  source: LogSource,
  wanted: (time: string) => boolean,
): AsyncGenerator<LogEntry> {
  const whole = makeJoiner()
  const files = existsSync(source.path) ? openFiles(source, 'all') : []
  try {
    for (const file of files) {
      for (const part of entriesOf(file)) {
        const entry = whole(part)
        if (entry && wanted(entry.time)) yield entry
      }
    }
  } finally {
    for (const file of files) file.close()
  }
}

// As for containers: longer lines are split.
const mostOfLine = 64 * 1024

/** Returns a line when its last part arrives. */
export function makeJoiner(): (part: Part) => LogEntry | null {
  const open: Partial<Record<LogEntry['stream'], LogEntry>> = {}
  return ({ log, stream, time }) => {
    const entry = (open[stream] ??= { time, stream, line: '' })
    entry.line += log
    if (!log.endsWith('\n') && entry.line.length < mostOfLine) return null
    delete open[stream]
    return { ...entry, line: entry.line.replace(/\n$/, '') }
  }
}

const readAtOnce = 256 * 1024

/** The entries of a file from this offset on. */
export function* entriesOf(file: LogFile, from = 0): Generator<Part> {
  for (let at = from; at < file.bytes; ) {
    const part = file.read(at, readAtOnce)
    if (part.length === 0) return
    at += part.length
    for (const line of part.toString().split('\n')) if (line !== '') yield JSON.parse(line) as Part
  }
}
