import { setTimeout as delay } from 'node:timers/promises'
import { asking, unless, until, wordsOf } from '../docker/errors.ts'
import { EngineError, EngineUnavailable } from '../errors.ts'
import type { DialMachine, SwarmMember, SwarmMembership } from '../swarms.ts'
import { engineOf, withEngine } from './dial.ts'

/** On a node of the Swarm: the id of its machine. */
export const machineLabel = 'keelson.machine'

// The addresses of the Swarm's own networks. Machines are in 10.77.0.0/24, their engines' bridges in 172.20.0.0/16.
const overlayPool = ['172.24.0.0/14']
const swarmPort = 2377
const lookEveryMs = 200
/** An engine in a VM without KVM takes seconds to answer. One that is frozen would never. */
const lookWithinMs = 60_000
/**
 * A Swarm gives up a member that is silent for three of these, and then starts its services anew, also if they still run
 * there: at its default of 5 s, an engine that stands still for 15 s would cost all its applications a second. The platform
 * itself finds lost machines and moves what runs on them, so a Swarm has time.
 */
const dispatcher = { HeartbeatPeriod: 20e9 } // ns
/** A worker that has joined appears at its manager within a second. */
const appearsWithinMs = 10_000

interface Info {
  ServerVersion: string
  Name: string
  Swarm: {
    NodeID: string
    LocalNodeState: string
    ControlAvailable: boolean
    RemoteManagers?: { NodeID: string }[] | null
  }
}

interface Node {
  ID: string
  Version: { Index: number }
  Spec: { Role: 'manager' | 'worker'; Availability: string; Labels?: Record<string, string> }
  Description: { Hostname: string }
  Status: { State: string; Addr: string }
}

/** The part of the engine's API that is used here: dockerode's types lack most of it. */
interface SwarmApi {
  info(options: { abortSignal?: AbortSignal }): Promise<Info>
  listNodes(): Promise<Node[]>
  getNode(id: string): {
    inspect(): Promise<Node>
    update(spec: object): Promise<unknown>
    remove(options: { force: true }): Promise<unknown>
  }
  listTasks(options: object): Promise<{ Status: { State: string } }[]>
  swarmInit(options: object): Promise<unknown>
  swarmJoin(options: object): Promise<unknown>
  swarmLeave(options: object): Promise<unknown>
  swarmInspect(): Promise<{ JoinTokens: { Worker: string } }>
}

export function makeSwarmMembership(dial: DialMachine): SwarmMembership {
  const at = (machineId: string): SwarmApi => engineOf<SwarmApi>(dial, machineId)
  const infoOf = (machineId: string, signal?: AbortSignal): Promise<Info> =>
    withEngine(dial, machineId, (engine: SwarmApi) => engine.info(until(signal)))

  /** What the engine says now. Rejects if that takes too long, or the signal aborts. */
  const lookAt = (machineId: string, signal: AbortSignal | undefined): Promise<Info> =>
    infoOf(machineId, AbortSignal.any([AbortSignal.timeout(lookWithinMs), ...(signal ? [signal] : [])]))

  const nodesOf = (managerId: string): Promise<Node[]> =>
    withEngine(dial, managerId, (engine: SwarmApi) => engine.listNodes())

  /** Changes a node until no other change comes in between. */
  async function changeNode(managerId: string, nodeId: string, change: (spec: Node['Spec']) => Node['Spec']) {
    for (let tries = 1; ; tries++) {
      const node = at(managerId).getNode(nodeId)
      const { Spec, Version } = await node.inspect()
      const next = change(structuredClone(Spec))
      if (JSON.stringify(next) === JSON.stringify(Spec)) return
      try {
        await node.update({ version: Version.Index, ...next })
        return
      } catch (error) {
        if (tries === 10 || !/out of sequence/.test(wordsOf(error))) throw error
      }
    }
  }

  const leave = async (machineId: string): Promise<void> => {
    const { Swarm } = await infoOf(machineId)
    if (Swarm.LocalNodeState === 'inactive') return
    await unless([503], at(machineId).swarmLeave({ force: true })) // 503: it has left
  }

  /** The node of a machine. Waits for one that has just joined. */
  async function nodeOf(managerId: string, machineId: string, withinMs: number): Promise<Node | null> {
    const deadline = performance.now() + withinMs
    for (;;) {
      const found = (await nodesOf(managerId)).find(({ Spec }) => Spec.Labels?.[machineLabel] === machineId)
      if (found) return found
      if (performance.now() > deadline) return null
      await delay(lookEveryMs)
    }
  }

  async function formed(machineId: string): Promise<SwarmMember> {
    const { Swarm } = await infoOf(machineId)
    await changeNode(machineId, Swarm.NodeID, (spec) => ({
      ...spec,
      Availability: 'drain',
      Labels: { ...spec.Labels, [machineLabel]: machineId },
    }))
    const node = await nodeOf(machineId, machineId, 0)
    if (!node) throw new EngineUnavailable('The Swarm does not have its manager')
    return toMember(node)
  }

  const membership: SwarmMembership = {
    async awaitEngine(machineId, withinMs, signal) {
      const deadline = performance.now() + withinMs
      for (;;) {
        try {
          const { ServerVersion } = await asking(() => lookAt(machineId, signal))
          return { version: ServerVersion }
        } catch (error) {
          signal?.throwIfAborted()
          if (error instanceof EngineError && error.permanent) throw error
          if (performance.now() > deadline)
            throw new EngineUnavailable('The container engine does not answer', error)
        }
        await delay(lookEveryMs, undefined, signal ? { signal } : {})
      }
    },

    form: (machineId, address) =>
      asking(async () => {
        const { Swarm } = await infoOf(machineId)
        if (!Swarm.ControlAvailable) {
          await leave(machineId)
          await at(machineId).swarmInit({
            ListenAddr: `${address}:${swarmPort}`,
            AdvertiseAddr: address,
            DataPathAddr: address,
            DefaultAddrPool: overlayPool,
            SubnetSize: 24,
            Availability: 'drain',
            Spec: { Dispatcher: dispatcher },
          })
        }
        return formed(machineId)
      }),

    manages: (machineId) => asking(async () => (await infoOf(machineId)).Swarm.ControlAvailable),

    async awaitManager(machineId, withinMs, signal) {
      const deadline = performance.now() + withinMs
      for (;;) {
        // An engine that restarts does not answer.
        const swarm = await lookAt(machineId, signal).then(
          ({ Swarm }) => Swarm,
          () => null,
        )
        if (swarm?.ControlAvailable) return true
        if (swarm?.LocalNodeState === 'error' || performance.now() > deadline) return false
        await delay(lookEveryMs, undefined, signal ? { signal } : {})
      }
    },

    workerToken: (managerId) =>
      asking(async () => {
        const { JoinTokens } = await at(managerId).swarmInspect()
        return JoinTokens.Worker
      }),

    join: (machineId, address, manager) =>
      asking(async () => {
        const { Swarm } = await infoOf(machineId)
        if (Swarm.LocalNodeState === 'active' && !Swarm.ControlAvailable) {
          // A node that was removed from its Swarm still believes to be active, and cannot tell.
          if (Swarm.RemoteManagers?.some(({ NodeID }) => NodeID === manager.node_id)) return
        }
        await leave(machineId)
        await at(machineId).swarmJoin({
          ListenAddr: `${address}:${swarmPort}`,
          AdvertiseAddr: address,
          DataPathAddr: address,
          RemoteAddrs: [`${manager.address}:${swarmPort}`],
          JoinToken: manager.token,
        })
      }),

    members: (managerId) => asking(async () => (await nodesOf(managerId)).map(toMember)),

    admit: (managerId, machineId, address) =>
      asking(async () => {
        const deadline = performance.now() + appearsWithinMs
        for (;;) {
          const nodes = await nodesOf(managerId)
          const node = nodes.find(
            ({ Status, Spec }) =>
              Status.Addr === address && Spec.Role === 'worker' && Status.State === 'ready',
          )
          if (node) {
            // What the machine was before it was made again.
            for (const other of nodes)
              if (other.ID !== node.ID && other.Spec.Labels?.[machineLabel] === machineId)
                await unless([404], at(managerId).getNode(other.ID).remove({ force: true }))
            return changeNode(managerId, node.ID, (spec) => ({
              ...spec,
              Availability: 'active',
              Labels: { ...spec.Labels, [machineLabel]: machineId },
            }))
          }
          if (performance.now() > deadline)
            throw new EngineUnavailable('The control plane does not see the worker')
          await delay(lookEveryMs)
        }
      }),

    drain: (managerId, machineId, withinMs, signal) =>
      asking(async () => {
        const there = await nodeOf(managerId, machineId, 0)
        if (!there) return
        await changeNode(managerId, there.ID, (spec) => ({ ...spec, Availability: 'drain' }))
        const deadline = performance.now() + withinMs
        const filters = { node: [there.ID] }
        for (;;) {
          const { Status: now } = await at(managerId).getNode(there.ID).inspect()
          if (now.State !== 'ready') return // it cannot end its tasks
          const tasks = await at(managerId).listTasks({ filters })
          if (!tasks.some(({ Status }) => ['running', 'starting', 'preparing'].includes(Status.State))) return
          if (performance.now() > deadline)
            throw new EngineUnavailable('The applications on the worker do not end')
          await delay(lookEveryMs, undefined, signal ? { signal } : {})
        }
      }, signal),

    remove: (managerId, machineId) =>
      asking(async () => {
        for (const { ID, Spec } of await nodesOf(managerId))
          if (Spec.Labels?.[machineLabel] === machineId)
            await unless([404], at(managerId).getNode(ID).remove({ force: true }))
      }),

    leave: (machineId) => asking(() => leave(machineId)),
  }
  return membership
}

const toMember = ({ ID, Spec, Status }: Node): SwarmMember => ({
  node_id: ID,
  machine_id: Spec.Labels?.[machineLabel] ?? '',
  address: Status.Addr,
  role: Spec.Role,
  availability: Spec.Availability === 'drain' ? 'drain' : 'active',
  state: Status.State === 'ready' ? 'ready' : 'down',
})
