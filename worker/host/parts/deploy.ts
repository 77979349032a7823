import { makeArtifactsOnHost } from '../../../activities/host/artifacts.ts'
import { makeDeployNodesOnHost } from '../../../activities/host/deploy-nodes.ts'
import { makeDeployServicesOnHost } from '../../../activities/host/deploy-services.ts'
import { checkedArchive } from '../../../drivers/archives/checked-archive.ts'
import type { ContainerEngine } from '../../../drivers/containers.ts'
import { makeAppFolders } from '../../../drivers/swarm/app-folders.ts'
import { makeSwarmMembership } from '../../../drivers/swarm/membership.ts'
import { makeSwarmServices } from '../../../drivers/swarm/services.ts'
import { makeTaskCommands } from '../../../drivers/swarm/task-commands.ts'
import { makeTaskLogs } from '../../../drivers/swarm/task-logs.ts'
import { makeMachineVolumes } from '../../../drivers/swarm/volumes.ts'
import type { InternalApi } from '../internal-api.ts'
import { connectFromMachines, dialMachines, reachesFromMachines } from '../machine-engines.ts'
import type { HostPart } from '../part.ts'

interface Parts {
  engine: Pick<ContainerEngine, 'pipe'>
  api: Pick<InternalApi, 'keepJoining' | 'joiningOf' | 'deployServices' | 'artifact'>
}

/** The machines of deploy servers on this host, and their Swarms. */
export function deployPart({ engine, api }: Parts): HostPart {
  const dial = dialMachines(engine)
  const nodes = makeDeployNodesOnHost({
    membership: makeSwarmMembership(dial),
    joining: { keep: api.keepJoining, of: api.joiningOf },
  })
  const services = makeDeployServicesOnHost({
    services: makeSwarmServices(dial),
    output: makeTaskLogs(dial),
    commands: makeTaskCommands(dial),
    volumes: makeMachineVolumes(dial),
    wanted: api.deployServices,
    connectFrom: connectFromMachines(engine),
    reaches: reachesFromMachines(engine),
  })
  const artifacts = makeArtifactsOnHost({
    folders: makeAppFolders(engine.pipe),
    content: api.artifact,
    check: checkedArchive,
  })
  return { name: 'deploy', activities: { ...nodes, ...services, ...artifacts } }
}
