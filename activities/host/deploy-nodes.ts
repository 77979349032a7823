import { cancellationSignal } from '@temporalio/activity'
import type { SwarmMembership } from '../../drivers/swarms.ts'
import type { Joining } from '../../lib/deploy-protocol.ts'

interface Parts {
  membership: SwarmMembership
  /** Keeps and fetches what workers need to join: the token never passes through Temporal. */
  joining: {
    keep(deployServerId: string, joining: Joining): Promise<void>
    of(deployServerId: string): Promise<Joining>
  }
}

// A task ends within its grace period, which is at most two minutes.
const drainsWithinMs = 180_000

/** Activities for the machines of deploy servers, on the host of the machine that is named first. All are idempotent. */
export const makeDeployNodesOnHost = ({ membership, joining }: Parts) => ({
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
  },

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
  admitNodeOnHost: (managerId: string, machineId: string, address: string): Promise<void> =>
    membership.admit(managerId, machineId, address),

  /** Has the worker take no further services, and waits until the present ones have ended. */
  drainNodeOnHost: (managerId: string, machineId: string): Promise<void> =>
    membership.drain(managerId, machineId, drainsWithinMs, cancellationSignal()),

  removeNodeOnHost: (managerId: string, machineId: string): Promise<void> =>
    membership.remove(managerId, machineId),
})
