import type { LogEntry, LogOptions } from '../containers.ts'
import type { LogSource } from '../log-files.ts'
import { lastOfAll, linesIn, makeJoiner, waited } from '../system/log-reader.ts'
import { exactTime } from '../system/times.ts'
import type { LogWriter } from './logs.ts'

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
      const found = linesIn(source, (time) => time >= from && time > after)
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
