import { makeArtifactsOnHost } from '../../../activities/host/artifacts.ts'
import { makeBackupsOnHost } from '../../../activities/host/backups.ts'
import { makeBuildsOnHost } from '../../../activities/host/builds.ts'
import { makeDatabasesOnHost } from '../../../activities/host/databases.ts'
import { makeDeployNodesOnHost } from '../../../activities/host/deploy-nodes.ts'
import { makeDeployServicesOnHost } from '../../../activities/host/deploy-services.ts'
import { checkedArchive } from '../../../drivers/archives/checked-archive.ts'
import { makeImageCopies } from '../../../drivers/docker/image-copies.ts'
import type { InstanceEngine } from '../../../drivers/instances.ts'
import { makeAppFolders, makeReadFolder } from '../../../drivers/swarm/app-folders.ts'
import { makeContainerScripts } from '../../../drivers/swarm/container-scripts.ts'
import { withEngine } from '../../../drivers/swarm/dial.ts'
import { makeForgetImages } from '../../../drivers/swarm/engine-images.ts'
import { makeImageBuilds } from '../../../drivers/swarm/image-builds.ts'
import { makeNixpacks } from '../../../drivers/swarm/nixpacks.ts'
import { makeSwarmMembership } from '../../../drivers/swarm/membership.ts'
import { makePullIntoMachine } from '../../../drivers/swarm/pulls.ts'
import type { MachineRegistries } from '../../../drivers/image-builds.ts'
import { makeMachineRegistries } from '../../../drivers/swarm/registry.ts'
import { makeRegistryCopies } from '../../../drivers/swarm/registry-copies.ts'
import { makeFreeBytes, makeScratchEngines } from '../../../drivers/swarm/scratch-engines.ts'
import { makeSwarmServices, serviceLabel } from '../../../drivers/swarm/services.ts'
import { makeSwarmStates } from '../../../drivers/swarm/states.ts'
import { makeTaskCommands } from '../../../drivers/swarm/task-commands.ts'
import { makeTaskLogs } from '../../../drivers/swarm/task-logs.ts'
import type { Uploads } from '../../../drivers/swarms.ts'
import { makeUploads } from '../../../drivers/swarm/uploads.ts'
import { makeMachineVolumes, makeRunningContainers } from '../../../drivers/swarm/volumes.ts'
import type { Logger } from '../../../lib/log.ts'
import type { InternalApi } from '../internal-api.ts'
import { connectFromMachines, dialMachines, reachesFromMachines } from '../machine-engines.ts'
import type { HostPart } from '../part.ts'
import { makeSwarmCopier } from '../swarm-copier.ts'

interface Parts {
  engine: Pick<InstanceEngine, 'pipe'>
  dockerHost: string
  registries: MachineRegistries
  /** The machines that are looked at again and again. */
  machines: () => string[]
  api: Pick<
    InternalApi,
    'keepJoining' | 'joiningOf' | 'deployServices' | 'artifact' | 'builds' | 'backups' | 'swarmCopies'
  >
  log: Logger
}

/** The registries in the machines of this host. */
export function openRegistries({
  engine,
  dockerHost,
}: Pick<Parts, 'engine' | 'dockerHost'>): MachineRegistries {
  const dial = dialMachines(engine)
  const copy = makeImageCopies(dockerHost, (machineId, work) => withEngine(dial, machineId, work))
  return makeMachineRegistries({ dial, pipe: engine.pipe, copy, connectFrom: connectFromMachines(engine) })
}

/** Archives that come to the machines of this host in parts. */
export const openUploads = ({ pipe }: Pick<InstanceEngine, 'pipe'>): Uploads => makeUploads(pipe)

/** The machines of deploy servers on this host, and their Swarms. */
export function deployPart({ engine, dockerHost, registries, machines, api, log }: Parts): HostPart {
  const dial = dialMachines(engine)
  const connectFrom = connectFromMachines(engine)
  const states = makeSwarmStates(engine.pipe)
  const copier = makeSwarmCopier({ states, api: api.swarmCopies, machines, log })
  const nodes = makeDeployNodesOnHost({
    membership: makeSwarmMembership(dial),
    joining: { keep: api.keepJoining, of: api.joiningOf },
    states,
    copies: { ...copier, newest: api.swarmCopies.newest },
  })
  const commands = makeTaskCommands(dial)
  const services = makeDeployServicesOnHost({
    services: makeSwarmServices(dial),
    output: makeTaskLogs(dial),
    commands,
    volumes: makeMachineVolumes(dial),
    containers: makeRunningContainers(dial),
    wanted: api.deployServices,
    changed: copier.soon,
    connectFrom,
    reaches: reachesFromMachines(engine),
  })
  const artifacts = makeArtifactsOnHost({
    folders: makeAppFolders(engine.pipe),
    uploads: makeUploads(engine.pipe),
    content: api.artifact,
    check: checkedArchive,
  })
  const copy = makeImageCopies(dockerHost, (machineId, work) => withEngine(dial, machineId, work))
  const builds = makeBuildsOnHost({
    builds: makeImageBuilds(engine.pipe),
    registries,
    copy,
    copyImages: makeRegistryCopies({ pipe: engine.pipe, connectFrom }),
    read: makeReadFolder(engine.pipe),
    nixpacks: makeNixpacks(engine.pipe),
    forget: makeForgetImages(dial),
    api: api.builds,
  })
  const databases = makeDatabasesOnHost({ copy, pull: makePullIntoMachine(dial), commands })
  const backups = makeBackupsOnHost({
    scripts: makeContainerScripts(dial, engine.pipe),
    scratch: makeScratchEngines(dial),
    freeBytes: makeFreeBytes(engine.pipe),
    serviceLabel,
    api: api.backups,
  })
  const activities = { ...nodes, ...services, ...artifacts, ...builds, ...databases, ...backups }
  return { name: 'deploy', activities, keep: (signal) => copier.keep(signal) }
}
