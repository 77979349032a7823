import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import Docker from 'dockerode'
import { z } from 'zod'
import { makeNamedQueues, mapAtOnce } from '../../lib/queue.ts'
import type { ContainerSpec, FoundContainer } from '../containers.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import { connection } from './connection.ts'
import { statusOf, until } from './errors.ts'
import { labels, restartPolicy } from './spec.ts'

// The engine restarts a container that ends after 100 ms, 200 ms, and so on up to a minute, as often as it likes, for any
// number of containers: some hundred that end at once keep it, and the machine, busy. So after some restarts in a row the
// host takes them over, with longer pauses and one at a time for each tenant.

export interface CrashLoops {
  /** What differs in a container of which the host has taken over the restarts. */
  see(info: Docker.ContainerInspectInfo): Partial<FoundContainer>
  /** Changes the policy of a container whose restarts the host has taken over. False if the engine restarts it. */
  resize(id: string, policy: RestartPolicy): Promise<boolean>
  /** Ends it, before something else is done with the container. Waits for a restart that has begun. */
  leave(id: string): Promise<void>
  /** Restarts those whose pause is over, one of each tenant. Gives containers back to the engine that run on. */
  restart(signal: AbortSignal): Promise<void>
}

type RestartPolicy = ContainerSpec['restart_policy']

/** As for the engine: a run of 10 s ends a row. */
const endsSoonMs = 10_000
/** The engine's fifth pause is 1.6 s. */
const restartsByEngine = 5
const firstPauseMs = 10_000
const lastPauseMs = 300_000
const tenantsAtOnce = 4
const answersWithinMs = 10_000

/** How long the host waits before its restart with this number, from 0. */
export const pauseMs = (number: number): number => Math.min(firstPauseMs * 2 ** number, lastPauseMs)

const Held = z.object({
  engine_id: z.string(),
  tenant_id: z.string(),
  policy: z.enum(['always', 'on_failure']),
  /** Restarts in all, by the engine and by the host. */
  restarts: z.int(),
  /** Pauses in a row. */
  pauses: z.int(),
})
type Held = z.infer<typeof Held>

interface Turn {
  /** The run that has ended, by its start. */
  ended: string | null
  /** When the container is looked at again. */
  at: number
}

export async function openCrashLoops(dockerHost: string, folder: string): Promise<CrashLoops> {
  const docker = new Docker(connection(dockerHost))
  const inTurn = makeNamedQueues()
  const fileOf = (id: string): string => join(folder, `${id}.json`)
  const held = await readHeld(folder)
  const turns = new Map<string, Turn>()
  /** The engine's count of restarts at the end of the last long run. */
  const longRuns = new Map<string, { engine_id: string; count: number }>()

  const keep = (id: string, one: Held): Promise<void> => publishText(fileOf(id), JSON.stringify(one))
  async function forget(id: string): Promise<void> {
    for (const known of [held, turns, longRuns]) known.delete(id)
    await rm(fileOf(id), { force: true })
  }
  const setPolicy = (engineId: string, policy: RestartPolicy): Promise<unknown> =>
    docker
      .getContainer(engineId)
      .update({ ...restartPolicy(policy), ...until(AbortSignal.timeout(answersWithinMs)) })

  /** Recorded before it is done: a host that is killed in between does it afterwards. */
  const take = (id: string, one: Held): Promise<void> =>
    inTurn(id, async () => {
      if (held.get(id) !== one) return
      await keep(id, one)
      await setPolicy(one.engine_id, 'never')
    }).catch(() => {
      // Looked at again in its turn.
    })

  /** Whether the engine has restarted it often, each time after a short run. */
  function isLooping(id: string, info: Docker.ContainerInspectInfo): boolean {
    const { Id: engine_id, RestartCount: count } = info
    const known = longRuns.get(id)
    if (known?.engine_id !== engine_id || ranMs(info) >= endsSoonMs || count < known.count) {
      longRuns.set(id, { engine_id, count })
      return false
    }
    return count - known.count >= restartsByEngine
  }

  function see(info: Docker.ContainerInspectInfo): Partial<FoundContainer> {
    const { State: state, Config, HostConfig } = info
    const id = Config.Labels[labels.resource] ?? ''
    let one = held.get(id)
    if (one && one.engine_id !== info.Id) {
      void leave(id)
      one = undefined
    }
    if (!one) {
      const policy = policies[HostConfig.RestartPolicy?.Name ?? '']
      if (!policy || Config.Labels[labels.machine] || !isLooping(id, info)) return {}
      one = {
        engine_id: info.Id,
        tenant_id: Config.Labels[labels.tenant] ?? '',
        policy,
        restarts: info.RestartCount,
        pauses: 0,
      }
      held.set(id, one)
      turns.set(id, { ended: null, at: Date.now() + endsSoonMs })
      void take(id, one)
    }
    if (state.Running)
      return { crash_looping: true, restart_count: Math.max(one.restarts, info.RestartCount) }
    if (one.policy === 'on_failure' && state.ExitCode === 0) {
      void leave(id)
      return {}
    }
    const turn = turns.get(id)
    if (turn?.ended !== state.StartedAt)
      turns.set(id, { ended: state.StartedAt, at: Date.now() + pauseMs(one.pauses) })
    return { state: 'running', crash_looping: true, restart_count: one.restarts }
  }

  const leave = (id: string): Promise<void> => inTurn(id, () => forget(id))

  /** The next of each tenant whose turn it is. */
  function due(): string[] {
    const now = Date.now()
    for (const id of held.keys()) if (!turns.has(id)) turns.set(id, { ended: null, at: now + firstPauseMs })
    const waiting = [...held]
      .map(([id, { tenant_id }]) => ({ id, tenant_id, at: turns.get(id)?.at ?? now }))
      .filter(({ at }) => at <= now)
      .toSorted((a, b) => a.at - b.at)
    return [...Map.groupBy(waiting, ({ tenant_id }) => tenant_id).values()].flatMap(
      ([first]) => first?.id ?? [],
    )
  }

  const next = (id: string, signal: AbortSignal): Promise<void> =>
    inTurn(id, async () => {
      const one = held.get(id)
      if (!one) return
      turns.set(id, { ended: null, at: Date.now() + pauseMs(one.pauses) }) // if it fails
      const container = docker.getContainer(one.engine_id)
      const info = await container.inspect(until(signal))
      if (info.State.Running && !info.State.Restarting && ranMs(info) >= endsSoonMs) {
        await setPolicy(one.engine_id, one.policy)
        return forget(id)
      }
      if (info.HostConfig.RestartPolicy?.Name !== 'no') await setPolicy(one.engine_id, 'never')
      turns.set(id, { ended: null, at: Date.now() + endsSoonMs })
      if (info.State.Running) return
      Object.assign(one, { restarts: one.restarts + 1, pauses: one.pauses + 1 })
      await keep(id, one)
      await container.start(until(signal))
    }).catch(async (error: unknown) => {
      if (statusOf(error) === 404) await leave(id)
      else throw error
    })

  return {
    see,
    leave,
    async resize(id, policy) {
      const one = held.get(id)
      if (!one) return false
      if (policy === 'never') await leave(id)
      else await inTurn(id, () => keep(id, Object.assign(one, { policy })))
      return true
    },
    async restart(signal) {
      const inTime = AbortSignal.any([signal, AbortSignal.timeout(answersWithinMs)])
      await mapAtOnce(due(), tenantsAtOnce, (id) => next(id, inTime))
    },
  }
}

const policies: Partial<Record<string, Held['policy']>> = {
  'unless-stopped': 'always',
  'on-failure': 'on_failure',
}

/** How long the present run has taken, or the last one. */
const ranMs = ({
  State: { Running, Restarting, StartedAt, FinishedAt },
}: Docker.ContainerInspectInfo): number =>
  (Running && !Restarting ? Date.now() : Date.parse(FinishedAt)) - Date.parse(StartedAt)

async function readHeld(folder: string): Promise<Map<string, Held>> {
  const names = (await readdir(folder).catch(nullIfMissing)) ?? []
  const all = new Map<string, Held>()
  for (const name of names.filter((one) => one.endsWith('.json'))) {
    const text = await readFile(join(folder, name), 'utf8')
    all.set(name.slice(0, -'.json'.length), Held.parse(JSON.parse(text)))
  }
  return all
}
