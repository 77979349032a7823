import { existsSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { LogEntry, LogOptions } from '../containers.ts'
import { openFiles } from '../system/log-files.ts'
import { exactTime } from '../system/times.ts'
import type { LogFile, LogSource } from '../log-files.ts'
import type { Entry, LogWriter, Part } from './logs.ts'

/** With more unread entries, a follower falls back to reading the files. */
const mostUnread = 1000

/**
 * Yields a machine's lines in order. `writer` returns the current writer, or null while the machine is not running.
 */
export async function* readMachineLogs(
  source: LogSource,
  writer: () => LogWriter | null,
  { lines, since, follow = false, signal }: LogOptions,
  isThere: () => Promise<boolean>,
): AsyncGenerator<LogEntry> {
  const from = since === undefined ? '' : exactTime(since)
  let after = ''
  let count = lines
  for (;;) {
    const live = follow ? followed(writer()) : null
    try {
      const found = joined(source, (time) => time >= from && time > after)
      for await (const entry of count === undefined ? found : lastOfAll(found, count)) {
        if (signal?.aborted) return
        yield entry
        after = entry.time
      }
      count = undefined
      if (!live) return
      while (!live.isOver() && writer() !== null) {
        for (const entry of live.take()) {
          if (entry.time > after) yield entry
          after = entry.time > after ? entry.time : after
        }
        await Promise.race([live.more(), waited(1000, signal)])
        if (signal?.aborted) return
      }
      if (!live.isOver()) await waited(1000, signal)
      if (signal?.aborted || !(await isThere())) return
    } finally {
      live?.stop()
    }
  }
}

/** Buffers new entries, until too many are unread. */
function followed(writer: LogWriter | null) {
  let unread: LogEntry[] = []
  let over = false
  let more = Promise.withResolvers<void>()
  const whole = makeJoiner()
  const stop = writer?.onEntry((part) => {
    const entry = whole(part)
    if (!entry) return
    if (unread.length >= mostUnread) over = true
    else unread.push(entry)
    more.resolve()
  })
  return {
    stop: () => stop?.(),
    isOver: () => over,
    take(): LogEntry[] {
      const taken = unread
      unread = []
      more = Promise.withResolvers()
      return taken
    },
    more: () => (unread.length > 0 ? Promise.resolve() : more.promise),
  }
}

const waited = (ms: number, signal: AbortSignal | undefined): Promise<void> =>
  delay(ms, undefined, signal ? { signal } : {}).catch(() => {})

async function* lastOfAll(entries: AsyncIterable<LogEntry>, count: number): AsyncGenerator<LogEntry> {
  let kept: LogEntry[] = []
  for await (const entry of entries) {
    kept.push(entry)
    if (kept.length > 2 * Math.max(count, mostUnread)) kept = kept.slice(-count)
  }
  if (count > 0) yield* kept.slice(-count)
}

const readAtOnce = 256 * 1024

/** Reads the files. Joins the parts of a line into one entry with the time of the first. */
async function* joined(source: LogSource, wanted: (time: string) => boolean): AsyncGenerator<LogEntry> {
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
function makeJoiner(): (part: Part) => LogEntry | null {
  const open: Partial<Record<LogEntry['stream'], LogEntry>> = {}
  return ({ log, stream, time }) => {
    const entry = (open[stream] ??= { time, stream, line: '' })
    entry.line += log
    if (!log.endsWith('\n') && entry.line.length < mostOfLine) return null
    delete open[stream]
    return { ...entry, line: entry.line.replace(/\n$/, '') }
  }
}

function* entriesOf(file: LogFile): Generator<Entry> {
  for (let at = 0; at < file.bytes; ) {
    const part = file.read(at, readAtOnce)
    if (part.length === 0) return
    at += part.length
    for (const line of part.toString().split('\n')) if (line !== '') yield JSON.parse(line) as Entry
  }
}
