import { EventEmitter, once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import type { ContainerEngine, FoundContainer } from '../../drivers/containers.ts'
import type { HostReport, ObservedInstance, ReportAnswer } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeBackoff } from '../retry.ts'

const everyMs = 10_000
// At most five reports a second, however much the engine does; and a fifth of the time at most, since a
// report that takes long tells that the engine or the API has more to do than to report.
const leastGapMs = 200
const gapPerReport = 4
// Each container costs the engine a call, so between two such lists only what changed is looked at.
const listEveryMs = 60_000

interface Parts {
  engine: ContainerEngine
  /** What the report says beside the instances. */
  about: () => Promise<Omit<HostReport, 'instances'>>
  send: (report: HostReport) => Promise<ReportAnswer>
  onAccepted: (answer: ReportAnswer) => void
  log: Logger
}

/**
 * Reports what runs here every 10 s and at each change, one report after the other, until aborted. Each
 * report is complete, so one that is lost needs no making up for.
 */
export async function keepReporting(parts: Parts, signal: AbortSignal): Promise<void> {
  const { engine, send, onAccepted, log } = parts
  const observed = makeObserver(parts)
  const news = new EventEmitter<{ change: [] }>()
  const watching = engine.watch((id) => {
    observed.changed(id)
    news.emit('change')
  }, signal)

  const backoff = makeBackoff()
  while (!signal.aborted) {
    try {
      const begun = Date.now()
      onAccepted(await send(await observed.report()))
      backoff.reset()
      const gapMs = Math.max(leastGapMs, gapPerReport * (Date.now() - begun))
      await delay(Math.min(gapMs, everyMs), undefined, { signal })
      if (observed.isStale()) continue
      const due = AbortSignal.any([signal, AbortSignal.timeout(everyMs)])
      await once(news, 'change', { signal: due }).catch(() => undefined)
    } catch (error) {
      if (signal.aborted) break
      observed.changed(null)
      log.warn({ err: error }, 'the report was not made or not accepted; trying again')
      await backoff.wait(signal)
    }
  }
  await watching
}

/** The present state of all containers, kept up to date by looking at those that changed. */
function makeObserver({ engine, about }: Pick<Parts, 'engine' | 'about'>) {
  let found = new Map<string, FoundContainer>()
  let host: Omit<HostReport, 'instances'>
  let listedAt = 0
  const changed = new Set<string>()

  async function list(): Promise<void> {
    listedAt = Date.now()
    changed.clear()
    const [containers, description] = await Promise.all([engine.list(), about()])
    found = new Map(containers.map((container) => [container.id, container]))
    host = description
  }

  async function lookAtChanged(): Promise<void> {
    const ids = [...changed]
    changed.clear() // before looking: what changes meanwhile is looked at again
    for (const id of ids) {
      const container = await engine.find(id)
      if (container) found.set(id, container)
      else found.delete(id)
    }
  }

  return {
    /** null: anything may have. */
    changed(id: string | null): void {
      if (id === null) listedAt = 0
      else changed.add(id)
    },
    isStale: (): boolean => listedAt === 0 || changed.size > 0,
    async report(): Promise<HostReport> {
      if (Date.now() - listedAt > listEveryMs) await list()
      else await lookAtChanged()
      return { ...host, instances: [...found.values()].map(toObserved) }
    },
  }
}

const toObserved = (container: FoundContainer): ObservedInstance => ({
  id: container.id,
  kind: 'container',
  state: container.state,
  exit_code: container.exit_code,
  oom_killed: container.oom_killed,
  restart_count: container.restart_count,
  started_at: container.started_at,
  health: container.health,
})
