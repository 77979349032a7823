import { EventEmitter, once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import type { HostReport, ReportAnswer } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeBackoff } from '../retry.ts'
import type { HostPart } from './part.ts'

const regularlyMs = 10_000
// At most five reports a second, and at most a fifth of the time: a slow report means that the engine or the API is
// busy.
const leastGapMs = 200
const gapPerReport = 4
// A description of the host costs an engine call.
const describeEveryMs = 60_000

type About = Omit<HostReport, 'machines' | 'things' | 'age_ms'>

interface Settings {
  parts: HostPart[]
  /** The report's data about the host itself. */
  about: () => Promise<About>
  /** Found in the background, so asked for each report. */
  machines: () => HostReport['machines']
  send: (report: HostReport) => Promise<ReportAnswer>
  onAccepted?: (answer: ReportAnswer) => void
  log: Logger
  /** Interval of reports while nothing changes. */
  everyMs?: number
}

/**
 * Sends a report every 10 s and at each change, one after another, and passes the answers to the parts, until aborted.
 * Each report is complete, so a lost one does no harm.
 */
export async function keepReporting(settings: Settings, signal: AbortSignal): Promise<void> {
  const { parts, send, onAccepted = () => {}, log, everyMs = regularlyMs } = settings
  const describe = makeDescription(settings.about)
  const news = new EventEmitter<{ change: [] }>()
  let isStale = false
  const onChange = (): void => {
    isStale = true
    news.emit('change')
  }
  const watching = parts.map(async (part) => part.watch?.(onChange, signal))

  async function look(): Promise<HostReport> {
    const begun = performance.now()
    isStale = false
    const [about, ...things] = await Promise.all([describe(), ...parts.map((part) => part.observe?.() ?? [])])
    for (const part of parts) part.observed?.()
    const age_ms = Math.round(performance.now() - begun)
    return { ...about, machines: settings.machines(), things: things.flat(), age_ms }
  }

  const backoff = makeBackoff()
  while (!signal.aborted) {
    try {
      const begun = performance.now()
      const answer = await send(await look())
      onAccepted(answer)
      for (const part of parts) follow(part, answer, log)
      backoff.reset()
      const gapMs = Math.max(leastGapMs, gapPerReport * (performance.now() - begun))
      await delay(Math.min(gapMs, everyMs), undefined, { signal })
      if (isStale) continue
      const leftMs = Math.max(0, Math.round(begun + everyMs - performance.now()))
      const due = AbortSignal.any([signal, AbortSignal.timeout(leftMs)])
      await once(news, 'change', { signal: due }).catch(() => undefined)
    } catch (error) {
      if (signal.aborted) break
      log.warn({ err: error }, 'the report was not made or not accepted; trying again')
      await backoff.wait(signal)
    }
  }
  await Promise.all(watching)
}

/** Passes a part its share of the answer. */
export function follow(part: HostPart, { not_yours, things, wanted }: ReportAnswer, log: Logger): void {
  const isIts = ({ kind }: { kind: string }): boolean => part.kinds?.includes(kind) ?? false
  part.remove?.(not_yours.filter(isIts).map(({ id }) => id))
  part.bringAbout?.(things.filter(isIts))
  const version = wanted[part.name]
  if (version === undefined || version === part.version?.()) return
  part
    .applyWanted?.()
    .catch((err: unknown) => log.warn({ err, part: part.name }, 'not as wanted; trying again'))
}

/** Refreshes the description after a minute, and after a failure. */
function makeDescription(about: () => Promise<About>): () => Promise<About> {
  let known: { at: number; about: About } | null = null
  return async () => {
    if (known && Date.now() - known.at < describeEveryMs) return known.about
    const at = Date.now()
    known = null
    known = { at, about: await about() }
    return known.about
  }
}
