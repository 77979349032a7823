import { EventEmitter, once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import type { FoundInstance, InstanceEngine } from '../../drivers/instances.ts'
import type { HostReport, ObservedInstance, ReportAnswer } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeBackoff } from '../retry.ts'

const regularlyMs = 10_000
// At most five reports a second, however much the engine does; and a fifth of the time at most, since a
// report that takes long tells that the engine or the API has more to do than to report.
const leastGapMs = 200
const gapPerReport = 4
// Each instance costs its engine a call, so between two such lists only what changed is looked at.
const listEveryMs = 60_000

type About = Omit<HostReport, 'instances' | 'disks' | 'age_ms'>

interface Parts {
  engine: Pick<InstanceEngine, 'list' | 'find' | 'remove' | 'watch'>
  /** What the report says beside the instances and disks. */
  about: () => Promise<About>
  /** The disks that are here. */
  disks: () => Promise<HostReport['disks']>
  /** What is here now, before it is told; also while nobody can be told. */
  onSeen: (found: FoundInstance[]) => void
  send: (report: HostReport) => Promise<ReportAnswer>
  onAccepted: (answer: ReportAnswer, found: FoundInstance[]) => void
  log: Logger
  /** Between two reports while nothing changes. */
  everyMs?: number
}

/**
 * Reports what runs here every 10 s and at each change, one report after the other, until aborted. Each
 * report is complete, so one that is lost needs no making up for.
 */
export async function keepReporting(parts: Parts, signal: AbortSignal): Promise<void> {
  const { engine, send, onSeen, onAccepted, log, everyMs = regularlyMs } = parts
  const observed = makeObserver(parts)
  const news = new EventEmitter<{ change: [] }>()
  const watching = engine.watch((id) => {
    observed.changed(id)
    news.emit('change')
  }, signal)

  const removals = new Map<string, Promise<void>>()

  /** The very instances that were reported: one that came back meanwhile is another. */
  function remove(found: Map<string, FoundInstance>, ids: string[]): void {
    for (const id of ids) {
      if (removals.has(id)) continue
      log.warn({ instance_id: id }, 'removing an instance that is not this host’s any more')
      // Beside the reports: its output is archived first, however much there is.
      const removal = engine
        .remove(id, { engineId: found.get(id)?.engine_id })
        .catch((error: unknown) => log.warn({ err: error, instance_id: id }, 'not removed; trying again'))
        .finally(() => removals.delete(id))
      removals.set(id, removal)
    }
  }

  const backoff = makeBackoff()
  while (!signal.aborted) {
    try {
      const begun = Date.now()
      const report = await observed.report()
      onSeen([...report.found.values()])
      const answer = await send(report.sent)
      onAccepted(answer, [...report.found.values()])
      remove(report.found, answer.not_yours)
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
  await Promise.all(removals.values())
}

/** The present state of all instances, kept up to date by looking at those that changed. */
function makeObserver({ engine, about, disks }: Pick<Parts, 'engine' | 'about' | 'disks'>) {
  let found = new Map<string, FoundInstance>()
  let host: About
  let listedAt = 0
  const changed = new Set<string>()

  async function list(): Promise<void> {
    listedAt = Date.now()
    changed.clear()
    const [instances, description] = await Promise.all([engine.list(), about()])
    found = new Map(instances.map((instance) => [instance.id, instance]))
    host = description
  }

  async function lookAtChanged(): Promise<void> {
    const ids = [...changed]
    changed.clear() // before looking: what changes meanwhile is looked at again
    for (const id of ids) {
      const instance = await engine.find(id)
      if (instance) found.set(id, instance)
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
    async report(): Promise<{ sent: HostReport; found: Map<string, FoundInstance> }> {
      const begun = performance.now()
      if (Date.now() - listedAt > listEveryMs) await list()
      else await lookAtChanged()
      const seen = { instances: [...found.values()].map(toObserved), disks: await disks() }
      const sent = { ...host, ...seen, age_ms: Math.round(performance.now() - begun) }
      return { sent, found: new Map(found) }
    },
  }
}

const toObserved = (found: FoundInstance): ObservedInstance => ({
  id: found.id,
  kind: found.kind,
  state: found.state,
  exit_code: found.exit_code,
  oom_killed: found.oom_killed,
  restart_count: found.restart_count,
  started_at: found.started_at,
  health: found.health,
  ended_by: 'ended_by' in found ? found.ended_by : null,
})
