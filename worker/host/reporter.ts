import { EventEmitter, once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import type { HostReport, ReportAnswer, ThingOnHost } from '../../lib/host-protocol.ts'
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
// So that a change of the description is usually in the report that is due.
const describedSoonMs = 1_000

/** How long a report waits for a part, and for the description of the host. */
const waitsMs = 10_000

type About = Omit<HostReport, 'machines' | 'things' | 'unseen' | 'age_ms'>

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
 * Each report is complete, so a lost one does no harm. It does not wait for a part whose engine does not answer: it says
 * that these things were not seen. Whether the host is reachable does not depend on reports (sign-of-life.ts).
 */
export async function keepReporting(settings: Settings, signal: AbortSignal): Promise<void> {
  const { parts, send, onAccepted = () => {}, log, everyMs = regularlyMs } = settings
  const describe = makeDescription(settings.about, log)
  const looks = parts.map((part) => makeLook(part, waitsMs, log))
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
    const [about, ...seen] = await Promise.all([describe(), ...looks.map((observe) => observe())])
    for (const part of parts) part.observed?.()
    const unseen = parts.flatMap((part, i) => (seen[i] === null ? (part.kinds ?? []) : []))
    const things = seen.flatMap((some) => some ?? [])
    const age_ms = Math.round(performance.now() - begun)
    return { ...about, machines: settings.machines(), things, unseen, age_ms }
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
    .catch((err: unknown) =>
      log.warn({ err, part: part.name }, 'this part is not in its wanted state; trying again'),
    )
}

/**
 * Observes one part. Returns null if it fails, or if it takes too long: it goes on then, and until it has ended no other
 * look at it begins.
 */
export function makeLook(part: HostPart, withinMs: number, log: Logger): () => Promise<ThingOnHost[] | null> {
  let open: Promise<ThingOnHost[] | null> | null = null
  return async () => {
    if (!part.observe) return []
    open ??= part
      .observe()
      .catch((err: unknown) => {
        log.warn({ err, part: part.name }, 'this part was not observed; trying again')
        return null
      })
      .finally(() => (open = null))
    return first(open, withinMs)
  }
}

/** The result; null if it takes longer. */
async function first<T>(work: Promise<T>, withinMs: number): Promise<T | null> {
  const ended = new AbortController()
  const late = delay(withinMs, null, { signal: ended.signal }).catch(() => null)
  return Promise.race([work, late]).finally(() => ended.abort())
}

/**
 * The description, refreshed each minute and after a failure. A known one is good until there is another, so that only
 * the first waits for the engine.
 */
function makeDescription(about: () => Promise<About>, log: Logger): () => Promise<About> {
  let known: About | null = null
  let describedAt = 0
  let open: Promise<About> | null = null
  return async () => {
    if (known && Date.now() - describedAt < describeEveryMs) return known
    open ??= about()
      .then((described) => {
        describedAt = Date.now()
        return (known = described)
      })
      .finally(() => (open = null))
    if (!known) return open
    open.catch((err: unknown) =>
      log.warn({ err }, 'the description of the host was not renewed; trying again'),
    )
    return (
      (await first(
        open.catch(() => null),
        describedSoonMs,
      )) ?? known
    )
  }
}
