import { cancellationSignal } from '@temporalio/activity'
import type { SwarmMembership } from '../../drivers/swarms.ts'

interface Parts {
  membership: SwarmMembership
  /** Keeps and fetches the join token of a deploy server: it never passes through Temporal. */
  tokens: {
    keep(deployServerId: string, token: string): Promise<void>
    fetch(deployServerId: string): Promise<string>
  }
}

// An engine starts within two seconds of its machine; on a host that starts thirty of them, within a minute.
const answersWithinMs = 120_000
// A task ends within its grace period, which is at most two minutes.
const drainsWithinMs = 180_000

/** Activities for the machines of deploy servers, on the host of the machine that is named first. All are idempotent. */
export const makeDeployNodesOnHost = ({ membership, tokens }: Parts) => ({
  /** Forms the Swarm of a deploy server on its control plane. */
  async formSwarmOnHost(deployServerId: string, machineId: string, address: string): Promise<void> {
    await membership.awaitEngine(machineId, answersWithinMs, cancellationSignal())
    await membership.form(machineId, address)
    await tokens.keep(deployServerId, await membership.workerToken(machineId))
  },

  /** Makes a machine a worker of the deploy server's Swarm. */
  async joinSwarmOnHost(
    deployServerId: string,
    machineId: string,
    address: string,
    managerAddress: string,
  ): Promise<void> {
    await membership.awaitEngine(machineId, answersWithinMs, cancellationSignal())
    const token = await tokens.fetch(deployServerId)
    await membership.join(machineId, address, { address: managerAddress, token })
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
