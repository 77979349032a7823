import { makeDeployNodesOnHost } from '../../../activities/host/deploy-nodes.ts'
import type { ContainerEngine } from '../../../drivers/containers.ts'
import { makeSwarmMembership } from '../../../drivers/swarm/membership.ts'
import type { InternalApi } from '../internal-api.ts'
import { dialMachines } from '../machine-engines.ts'
import type { HostPart } from '../part.ts'

interface Parts {
  engine: Pick<ContainerEngine, 'pipe'>
  api: Pick<InternalApi, 'keepJoinToken' | 'joinToken'>
}

/** The machines of deploy servers on this host, and their Swarms. */
export function deployPart({ engine, api }: Parts): HostPart {
  const membership = makeSwarmMembership(dialMachines(engine))
  const tokens = { keep: api.keepJoinToken, fetch: api.joinToken }
  return { name: 'deploy', activities: makeDeployNodesOnHost({ membership, tokens }) }
}
