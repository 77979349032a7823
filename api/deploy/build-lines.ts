import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { type LoggedLine, type LogPlace, logPartAfter, logTimesBack } from '../../models/deploy/build-logs.ts'
import { Build, type BuildDocument } from '../../models/deploy/builds.ts'
import type { LogsQuery } from '../compute/observation/logs.ts'

const lookEveryMs = 500

/** The lines of a build's log as JSON, read as the client takes them. To follow ends when the build has ended. */
export const buildLines = (build: BuildDocument, query: LogsQuery, signal: AbortSignal): Readable =>
  Readable.from(textOf(build, query, signal), { objectMode: false })

async function* textOf(build: BuildDocument, query: LogsQuery, signal: AbortSignal): AsyncGenerator<Buffer> {
  const { lines: most, since, follow } = query
  const isWanted = ({ time }: Pick<LoggedLine, 'time'>): boolean =>
    since === undefined || Date.parse(time) >= Date.parse(since)
  const first = most === undefined ? null : await placeOfLast(build, most, isWanted)
  let left = follow ? undefined : most
  let place = first && before(first)
  for (;;) {
    // Asked before the lines: an ended build writes no more.
    const isOpen = follow && !signal.aborted && (await isUnderWay(build))
    for (;;) {
      const part = await logPartAfter(build, place)
      if (!part) break
      place = part
      const skipped = first && isSame(part, first) ? first.skipped : 0
      const sent = part.lines.filter(isWanted).slice(skipped, left === undefined ? undefined : skipped + left)
      // A build may write faster than the client reads.
      if (left !== undefined) left -= sent.length
      if (sent.length)
        yield Buffer.from(sent.map(({ time, line }) => `${JSON.stringify({ time, line })}\n`).join(''))
      if (signal.aborted || left === 0) return
    }
    if (!isOpen) return
    await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

interface Begin extends LogPlace {
  /** Lines of this part that come before the last ones. */
  skipped: number
}

/** Where the last lines begin. Null: they are all lines. */
async function placeOfLast(
  build: BuildDocument,
  count: number,
  isWanted: (line: Pick<LoggedLine, 'time'>) => boolean,
): Promise<Begin | null> {
  let left = count
  for await (const { attempt, part, lines } of logTimesBack(build)) {
    const wanted = lines.filter(isWanted).length
    if (wanted >= left) return { attempt, part, skipped: wanted - left }
    left -= wanted
  }
  return null
}

const before = ({ attempt, part }: LogPlace): LogPlace => ({ attempt, part: part - 1 })
const isSame = (one: LogPlace, other: LogPlace): boolean =>
  one.attempt === other.attempt && one.part === other.part

async function isUnderWay({ _id, tenant_id }: BuildDocument): Promise<boolean> {
  return (await Build.exists({ _id, tenant_id, operation_id: { $ne: null } })) !== null
}
