import { setTimeout as delay } from 'node:timers/promises'
import type { SwarmStatePosition, SwarmStates } from '../../drivers/swarms.ts'
import { newId } from '../../lib/ids.ts'
import type { Logger } from '../../lib/log.ts'
import { mapAtOnce, makeNamedQueues } from '../../lib/queue.ts'
import type { InternalApi } from './internal-api.ts'

interface Parts {
  states: Pick<SwarmStates, 'read'>
  api: Pick<InternalApi['swarmCopies'], 'controlPlanes' | 'keep'>
  /** The machines that are looked at again and again. */
  machines: () => string[]
  log: Logger
}

/** What a copy has. It is forgotten with this process: the next one begins a new copy. */
interface Kept {
  copy_id: string
  pieces: number
  position: SwarmStatePosition
}

// A service that failed by itself and was started again is in the copy within this time.
const everyMs = 30_000
/** The Swarm has placed a new service by then, and the changes of a few deployments are one piece. */
const soonMs = 1_000
const atOnce = 4
/** So many failures one after another take some minutes. */
const worthAWarning = 10
/** A copy that has so many is begun anew: it has each change since its beginning. */
const piecesAtMost = 1_000

/**
 * Keeps copies of what the control planes on this host know of their Swarms, so that a new control plane can go on in the place
 * of a lost one. What it could not copy, it copies with the next look.
 */
export function makeSwarmCopier({ states, api, machines, log }: Parts) {
  const known = new Map<string, Kept>()
  /** Those that are copied soon. */
  const waiting = new Set<string>()
  /** How often the last copies of a machine failed. */
  const failures = new Map<string, number>()
  const inTurn = makeNamedQueues()

  async function copy(deployServerId: string, machineId: string): Promise<void> {
    for (;;) {
      const kept = known.get(machineId)
      const isLong = kept !== undefined && kept.pieces >= piecesAtMost
      const read = await states.read(machineId, isLong ? null : (kept?.position ?? null))
      if (read === null) return
      if (read === 'lost') {
        known.delete(machineId)
        continue
      }
      const { copy_id, pieces: index } = kept && !isLong ? kept : { copy_id: newId(), pieces: 0 }
      known.delete(machineId) // whether a piece is kept is not known when its sending fails
      const place = { machine_id: machineId, index, whole: !read.more }
      await api.keep(deployServerId, copy_id, place, read.piece)
      known.set(machineId, { copy_id, pieces: index + 1, position: read.to })
      if (!read.more) return
    }
  }

  const now = (deployServerId: string, machineId: string): Promise<void> =>
    inTurn(machineId, () => copy(deployServerId, machineId))

  async function tryTo(deployServerId: string, machineId: string): Promise<void> {
    try {
      await now(deployServerId, machineId)
      failures.delete(machineId)
    } catch (err) {
      const count = (failures.get(machineId) ?? 0) + 1
      failures.set(machineId, count)
      const level = count % worthAWarning === 0 ? 'warn' : 'debug' // it may have just ended
      log[level]({ err, machine_id: machineId }, 'what a control plane knows was not copied; trying again')
    }
  }

  return {
    /** Copies what is new. Throws what the machine and the API throw. */
    now,

    /** The same in a second, in the background. */
    soon: (deployServerId: string, machineId: string): void => {
      if (waiting.has(machineId)) return
      waiting.add(machineId)
      void delay(soonMs, undefined, { ref: false }).then(() => {
        waiting.delete(machineId)
        return tryTo(deployServerId, machineId)
      })
    },

    /** Looks at all control planes again and again, until aborted. */
    async keep(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        try {
          const all = await api.controlPlanes()
          const running = new Set(machines())
          const here = all.filter(({ machine_id }) => running.has(machine_id))
          await mapAtOnce(here, atOnce, (one) => tryTo(one.deploy_server_id, one.machine_id))
          const ids = new Set(all.map(({ machine_id }) => machine_id))
          for (const map of [known, failures]) for (const id of map.keys()) if (!ids.has(id)) map.delete(id)
        } catch (err) {
          log.debug({ err }, 'the control planes on this host are not known; trying again')
        }
        await delay(everyMs, undefined, { signal }).catch(() => undefined)
      }
    },
  }
}

export type SwarmCopier = ReturnType<typeof makeSwarmCopier>
