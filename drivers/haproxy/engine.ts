import { existsSync } from 'node:fs'
import { mkdir, readdir, rm } from 'node:fs/promises'
import { resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { makeQueue } from '../../lib/queue.ts'
import { listGroups } from '../linux/groups.ts'
import type { LoadBalancerEngine, LoadBalancerState } from '../load-balancers.ts'
import { portKey } from '../system/host-ports.ts'
import { applySpec, masterIn, mustBeWhole, startFromFile } from './apply.ts'
import { NewChecks, targetsOf } from './health.ts'
import { type HaproxySettings, LoadBalancerHost } from './host.ts'
import { unnameHostNamespace } from './host-namespace.ts'
import { readTallied } from './log-carrier.ts'
import {
  endReader,
  type LogPaths,
  logSource,
  makeAccessLogFiles,
  notePath,
  startReader,
  untilWritten,
} from './logs.ts'
import { endProcesses, forgetProcess } from './processes.ts'
import { recordedState } from './records.ts'
import { answers, statsOf, statsOfWorker } from './runtime.ts'
import { samplesOf } from './samples.ts'

const lookEveryMs = 500
const looksForChecksEveryMs = 100
/** Load balancers that are looked at, and started if they have ended, at the same time. */
const looksAtOnce = 8

/** Load balancers on HAProxy, 2.6 or later; needs root. Those that run go on running, also after `close`. */
export async function openHaproxy(settings: HaproxySettings): Promise<LoadBalancerEngine> {
  const known = {
    hostNamespace: null,
    logBacklogMib: 0,
    beforeRemoval: async () => {},
    ...settings,
    folder: resolve(settings.folder),
    run: resolve(settings.run),
  }
  await mkdir(known.folder, { recursive: true })
  const host = new LoadBalancerHost(known)
  const logPaths: LogPaths = new Map()
  const doing = <T>(id: string, work: () => Promise<T>): Promise<T> => host.inTurn(id, work)
  /** For what all load balancers share. */
  const sharing = <T>(work: () => Promise<T>): Promise<T> => host.inTurn('', work)

  known.ports.addEngine(async (exceptId) => {
    const others = (await host.ids()).filter((id) => id !== exceptId)
    const records = await Promise.all(others.map((id) => host.record(id)))
    return records
      .flatMap((record) => record?.ports ?? [])
      .map((port) => portKey({ ...port, protocol: 'tcp' }))
  })

  async function stateOf(id: string): Promise<LoadBalancerState | null> {
    const place = host.placeOf(id)
    const record = await host.record(id)
    if (!record) {
      const isThere = existsSync(place.folder) || existsSync(place.run)
      return isThere ? leftover(id) : null
    }
    notePath(logPaths, place, record)
    const rows =
      (await masterIn(place, record.spec.namespace)) === null ? null : await statsOf(place).catch(() => null)
    const targets = targetsOf(record, rows ?? [], host.known(id))
    return { ...recordedState(record), state: rows ? 'running' : 'broken', targets }
  }

  /** Starts the process if it has ended or does not answer. Returns whether it did so. */
  async function mendOne(id: string): Promise<boolean> {
    const place = host.placeOf(id)
    const record = await host.record(id)
    if (!record || !existsSync(place.config)) return false
    const isWhole = (await masterIn(place, record.spec.namespace)) !== null && (await answers(place))
    if (isWhole) return false
    await host.outside() // its name may have gone with a boot
    await startFromFile(host, place, record)
    return true
  }

  async function removeAll(id: string): Promise<void> {
    const place = host.placeOf(id)
    if (await host.record(id)) {
      await known.beforeRemoval(id) // most of the log, while requests are still served
      await endProcesses(place)
      // A full disk must not keep a load balancer from being removed.
      await untilWritten(place, known).catch(() => {})
      await known.beforeRemoval(id)
    }
    await forgetProcess(place, host.mark)
    await rm(place.folder, { recursive: true, force: true, maxRetries: 10 })
    host.forget(id)
  }

  async function tidyShared(): Promise<void> {
    if ((await host.ids()).length > 0) return
    await endReader(known)
    if (known.hostNamespace === null) await unnameHostNamespace(host.mark)
    await rm(known.run, { recursive: true, force: true })
  }

  async function allIds(): Promise<string[]> {
    const running = await readdir(known.run).catch(() => [])
    return [...new Set([...(await host.ids()), ...running, ...(await listGroups(host.mark))])]
  }

  return {
    apply: (spec) =>
      sharing(() => mkdir(known.run, { recursive: true, mode: 0o700 })).then(() =>
        doing(spec.id, async () => {
          mustBeWhole(spec)
          await applySpec(host, spec)
          return (await stateOf(spec.id)) as LoadBalancerState
        }),
      ),

    remove: async (id) => {
      await doing(id, () => removeAll(id))
      await sharing(tidyShared)
    },

    find: (id) => stateOf(id),

    list: async () => {
      const found = await Promise.all((await allIds()).map(stateOrLeftover))
      return found.filter((one) => one !== null)
    },

    recheck: async (id, targets, withinMs, signal) => {
      const record = isName(id) ? await host.record(id) : null
      const checks = new NewChecks(targets, record?.spec.health_check.interval_sec ?? 0)
      const deadline = performance.now() + withinMs
      for (;;) {
        const askedAt = performance.now()
        const seen = await statsOfWorker(host.placeOf(id)).catch(() => ({ worker: '', rows: [] }))
        const unreached = checks.unreached({ ...seen, askedAt, answeredAt: performance.now() })
        if (unreached.length === 0 || performance.now() > deadline) return unreached
        await delay(looksForChecksEveryMs, undefined, { signal })
      }
    },

    samples: async (id) => {
      if (!isName(id)) return null
      const [state, record] = [await stateOf(id), await host.record(id)]
      const tallied = readTallied(host.placeOf(id).tallies)
      if (!state || !record || !tallied) return null
      const { started_at } = tallied
      return { started_at, routes: samplesOf(record.spec.routes, tallied, state.targets) }
    },

    watch: async (onChange, signal) => {
      const seen = new Map<string, string>()
      async function look(id: string): Promise<void> {
        const wasDown = await doing(id, () => mendOne(id)).catch(() => true) // the next look tries again
        const sign = signOf(await stateOf(id).catch(() => null))
        const before = seen.get(id)
        seen.set(id, sign)
        if (!signal.aborted && (wasDown || (before !== undefined && before !== sign))) onChange(id)
      }
      // Side by side: one that is being changed or started does not delay the repair of another.
      const inTurn = makeQueue(looksAtOnce)
      const looks = new Map<string, Promise<void>>()
      while (!signal.aborted) {
        for (const id of await host.ids())
          if (!looks.has(id)) {
            const ended = (): void => void looks.delete(id)
            looks.set(id, inTurn(() => look(id)).then(ended, ended))
          }
        await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
      }
      await Promise.all(looks.values())
    },

    mend: async () => {
      const ids = await host.ids()
      if (ids.length > 0) await sharing(() => startReader(known))
      const done = await Promise.allSettled(ids.map((id) => doing(id, () => mendOne(id))))
      const failed = done.find(({ status }) => status === 'rejected')
      if (failed?.status === 'rejected') throw failed.reason
    },

    files: makeAccessLogFiles(async (id) => {
      const record = isName(id) ? await host.record(id) : null
      return record && logSource(host.placeOf(id), record, known.logBacklogMib)
    }, logPaths),

    close: async () => {},
  }

  async function stateOrLeftover(id: string): Promise<LoadBalancerState | null> {
    return isName(id) ? ((await stateOf(id)) ?? leftover(id)) : null
  }
}

const isName = (id: string): boolean => /^[a-z0-9][a-z0-9-]{0,35}$/.test(id)

const leftover = (id: string): LoadBalancerState => ({
  id,
  state: 'leftover',
  log: null,
  ports: [],
  refused: [],
  left_out: [],
  targets: [],
})

/** What a watcher compares: the state without numbers that change all the time. */
const signOf = (state: LoadBalancerState | null): string =>
  JSON.stringify([
    state?.state,
    state?.targets.map(({ route_id, target_id, health }) => [route_id, target_id, health]),
  ])
