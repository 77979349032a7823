import type { Readable } from 'node:stream'
import { cancellationSignal } from '@temporalio/activity'
import type { SwarmMembership, SwarmStates } from '../../drivers/swarms.ts'
import { newId } from '../../lib/ids.ts'
import type { Joining } from '../../lib/deploy-protocol.ts'

interface Parts {
  membership: SwarmMembership
  /** Keeps and fetches what workers need to join: the token never passes through Temporal. */
  joining: {
    keep(deployServerId: string, joining: Joining): Promise<void>
    of(deployServerId: string): Promise<Joining>
  }
  states: Pick<SwarmStates, 'put' | 'forget'>
  copies: {
    /** The newest copy of what a control plane knew; null if there is none. */
    newest(deployServerId: string): Promise<Readable | null>
    /** Copies what has changed. */
    now(deployServerId: string, machineId: string): Promise<void>
    soon(deployServerId: string, machineId: string): void
  }
}

// A task ends within its grace period, which is at most two minutes.
const drainsWithinMs = 180_000

/** Activities for the machines of deploy servers, on the host of the machine that is named first. All are idempotent. */
export const makeDeployNodesOnHost = ({ membership, joining, states, copies }: Parts) => ({
  /** Forms the Swarm of a deploy server on its control plane. */
  async formSwarmOnHost(
    deployServerId: string,
    machineId: string,
    address: string,
    answersWithinSec: number,
  ): Promise<void> {
    await membership.awaitEngine(machineId, answersWithinSec * 1000, cancellationSignal())
    const { node_id } = await membership.form(machineId, address)
    const token = await membership.workerToken(machineId)
    await joining.keep(deployServerId, { token, manager_node_id: node_id })
    copies.soon(deployServerId, machineId)
  },

  /** Copies what the control plane knows of its Swarm. */
  copySwarmOnHost: (deployServerId: string, machineId: string): Promise<void> =>
    copies.now(deployServerId, machineId),

  /**
   * Has a new control plane go on as the manager that the former one was, so that the workers do not notice. Returns false if
   * there is no copy of what that one knew, or the engine does not start with it.
   */
  async bringBackSwarmOnHost(
    deployServerId: string,
    machineId: string,
    answersWithinSec: number,
  ): Promise<boolean> {
    const signal = cancellationSignal()
    await membership.awaitEngine(machineId, answersWithinSec * 1000, signal)
    if (await membership.manages(machineId)) return true
    const copy = await copies.newest(deployServerId)
    if (!copy) return false
    await states.put(machineId, newId(), copy)
    if (await membership.awaitManager(machineId, answersWithinSec * 1000, signal)) return true
    await states.forget(machineId)
    return false
  },

  /** Restarts the engine of a machine, which is in no Swarm then. */
  forgetSwarmOnHost: (machineId: string): Promise<void> => states.forget(machineId),

  /** Makes a machine a worker of the deploy server's Swarm. It leaves any other Swarm, which ends its applications. */
  async joinSwarmOnHost(
    deployServerId: string,
    machineId: string,
    address: string,
    managerAddress: string,
    answersWithinSec: number,
  ): Promise<void> {
    await membership.awaitEngine(machineId, answersWithinSec * 1000, cancellationSignal())
    const { token, manager_node_id: node_id } = await joining.of(deployServerId)
    await membership.join(machineId, address, { address: managerAddress, token, node_id })
  },

  /** Waits until the manager knows the worker, and lets it take services. */
  async admitNodeOnHost(
    managerId: string,
    machineId: string,
    address: string,
    deployServerId: string,
  ): Promise<void> {
    await membership.admit(managerId, machineId, address)
    copies.soon(deployServerId, managerId)
  },

  /** Has the worker take no further services, and waits until the present ones have ended. */
  drainNodeOnHost: (managerId: string, machineId: string): Promise<void> =>
    membership.drain(managerId, machineId, drainsWithinMs, cancellationSignal()),

  removeNodeOnHost: (managerId: string, machineId: string): Promise<void> =>
    membership.remove(managerId, machineId),

  /** Whether the manager knows the machine as a member. */
  async knowsNodeOnHost(managerId: string, machineId: string): Promise<boolean> {
    const members = await membership.members(managerId)
    return members.some(({ machine_id }) => machine_id === machineId)
  },

  /** Has a machine leave its Swarm, which ends its applications. */
  leaveSwarmOnHost: (machineId: string): Promise<void> => membership.leave(machineId),
})
