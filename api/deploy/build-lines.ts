import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { type LoggedLine, type LogPlace, logPartsAfter } from '../../models/deploy/build-logs.ts'
import { Build, type BuildDocument } from '../../models/deploy/builds.ts'
import type { LogsQuery } from '../compute/observation/logs.ts'

const lookEveryMs = 500

/** The lines of a build's log as JSON. To follow ends when the build has ended. */
export const buildLines = (build: BuildDocument, query: LogsQuery, signal: AbortSignal): Readable =>
  Readable.from(textOf(build, query, signal), { objectMode: false })

async function* textOf(build: BuildDocument, query: LogsQuery, signal: AbortSignal): AsyncGenerator<Buffer> {
  const { lines: most, since, follow } = query
  const isWanted = ({ time }: LoggedLine): boolean =>
    since === undefined || Date.parse(time) >= Date.parse(since)
  let place: LogPlace | null = null
  for (let isFirst = true; ; isFirst = false) {
    // Asked before the lines: an ended build writes no more.
    const isOpen = follow && !signal.aborted && (await isUnderWay(build))
    const parts = await logPartsAfter(build, place)
    place = parts.at(-1) ?? place
    const found = parts.flatMap(({ lines }) => lines).filter(isWanted)
    const sent =
      isFirst && most !== undefined ? found.slice(found.length - Math.min(most, found.length)) : found
    if (sent.length)
      yield Buffer.from(sent.map(({ time, line }) => `${JSON.stringify({ time, line })}\n`).join(''))
    if (!isOpen) return
    await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

async function isUnderWay({ _id, tenant_id }: BuildDocument): Promise<boolean> {
  return (await Build.exists({ _id, tenant_id, operation_id: { $ne: null } })) !== null
}
