import { newId } from '../../lib/ids.ts'
import { Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { lockParent } from '../parents.ts'
import { Application } from './applications.ts'
import { Deployment, type DeploymentDocument, type Place } from './deployments.ts'
import {
  type DeployNode,
  DeployServer,
  type DeployServerDocument,
  deployServerResource,
} from './deploy-servers.ts'
import { registryFor } from './image-copies.ts'
import { instanceTypes } from './instance-types.ts'
import { type Occupant, occupantsOf } from './occupants.ts'

// Chooses workers and ports: of a release's replicas, and of what stays on the worker of its volumes.

const ports = { first: 20_000, count: 10_000 }

/**
 * Ports are given in turn. One that was free a moment ago may still be bound by a container that is ending, and known to a
 * load balancer as down.
 */
export interface Turn {
  /** Counted from the first port. */
  next: number
}

/** What an engine keeps for itself: see images/machine/machine-limit. */
const forApplications = (memoryMib: number): number => memoryMib - Math.min(memoryMib / 8, 256)

interface Load {
  node: DeployNode & { machine_id: string }
  memory_mib: number
  replicas: number
  ports: Set<number>
  /** Replicas of the same deployment. */
  own: number
}

/**
 * Places the replicas of a deployment, and has its services run from now on. Returns the places that it has already.
 * Throws NoRoom if the workers have too little memory for it beside all that runs.
 */
export const placeRelease = (deployment: DeploymentDocument): Promise<Place[]> =>
  transaction(async () => {
    const { _id, tenant_id, app_id, deploy_server_id, built } = deployment
    const now = await Deployment.findOne({ _id, tenant_id }, { places: 1 }).lean()
    let places = now?.places ?? []
    if (places.length === 0) {
      const server = await lockParent(deployServerResource, tenant_id, deploy_server_id)
      const turn = { next: server.next_port }
      places = await chooseFor(deployment, await loadsOf(server), turn)
      const pulling = built === null ? {} : { pulls_from: await registryFor(server, built) }
      await Deployment.updateOne({ _id, tenant_id }, { $set: { places, ...pulling } })
      await DeployServer.updateOne({ _id: server._id, tenant_id }, { $set: { next_port: turn.next } })
    }
    await Application.updateOne({ _id: app_id, tenant_id }, { $addToSet: { wanted_ids: _id } })
    return places
  }, deployment.deploy_server_id)

/** Replicas with volumes run on the worker that has them; the first release chooses it. */
async function chooseFor(deployment: DeploymentDocument, loads: Load[], turn: Turn): Promise<Place[]> {
  const { tenant_id, app_id, mounts } = deployment
  if (mounts.length === 0) return choose(deployment, loads, turn)
  const application = await Application.findOne({ _id: app_id, tenant_id }).lean()
  const pinned =
    application?.volume_node ?? choose({ ...deployment, replicas: 1 }, copies(loads), { ...turn })[0]?.node
  await Application.updateOne({ _id: app_id, tenant_id }, { $set: { volume_node: pinned } })
  return choose(
    deployment,
    loads.filter(({ node }) => node.name === pinned),
    turn,
  )
}

const copies = (loads: Load[]): Load[] => loads.map((load) => ({ ...load, ports: new Set(load.ports) }))

/** Where something runs whose volumes are on one worker, and the worker's port that leads to it. */
export interface PinnedPlace {
  node: string
  machine_port: number
}

/**
 * Places what runs on the worker of its volumes, or chooses a worker if it has none yet. Runs in the caller's
 * transaction, which keeps the answer. `itself`: its id, which takes no room from itself. Throws NoRoom, and
 * `worker_away` while the worker of its volumes does not answer.
 */
export async function placePinned(
  { tenant_id, deploy_server_id }: { tenant_id: string; deploy_server_id: string },
  itself: string,
  of: { volume_node: string | null; machine_port: number | null; memory_mib: number },
): Promise<PinnedPlace> {
  const { volume_node, machine_port, memory_mib } = of
  const server = await lockParent(deployServerResource, tenant_id, deploy_server_id)
  const turn = { next: server.next_port }
  const place = await placeTogether(server, turn, {
    itself,
    node: volume_node,
    memory_mib,
    ports: machine_port === null ? 1 : 0,
  })
  if (machine_port !== null) return { node: place.node, machine_port }
  await DeployServer.updateOne({ _id: server._id, tenant_id }, { $set: { next_port: turn.next } })
  return { node: place.node, machine_port: place.machine_ports[0] ?? 0 }
}

/**
 * Chooses a worker for what must run together, or checks the one that it has, and ports of it. `itself` takes no room from
 * itself. Throws NoRoom, and `worker_away` while its worker does not answer.
 */
export async function placeTogether(
  server: DeployServerDocument,
  turn: Turn,
  of: { itself: string; node: string | null; memory_mib: number; ports: number },
): Promise<{ node: string; machine_ports: number[] }> {
  const all = await loadsOf(server, (one) => one.id !== of.itself)
  const loads = all.filter(({ node }) => of.node === null || node.name === of.node)
  if (loads.length === 0 && of.node !== null) {
    const detail = `${of.node}, which has its volumes, does not answer`
    throw new Problem(409, 'worker_away', 'The worker does not answer', detail)
  }
  const best = roomiest(loads, of.memory_mib)
  if (!best) throw new NoRoom(1, of.memory_mib)
  const machine_ports = Array.from({ length: of.ports }, () => freePort(best.ports, turn))
  return { node: best.node.name, machine_ports }
}

/** The worker with room that is loaded least. Replicas of one release are kept apart. */
function roomiest(loads: Load[], memoryMib: number): Load | undefined {
  const roomy = loads.filter(
    ({ node, memory_mib: used }) =>
      used + memoryMib <= forApplications(instanceTypes[node.instance_type].memory_mib),
  )
  const [best] = roomy.toSorted(
    (a, b) => a.own - b.own || a.memory_mib - b.memory_mib || a.replicas - b.replicas,
  )
  return best
}

/** The workers that stay and answer, with what runs on them. */
async function loadsOf(
  server: DeployServerDocument,
  counts: (one: Occupant) => boolean = () => true,
): Promise<Load[]> {
  const { nodes, worker_count } = server
  const running = (await occupantsOf(server)).filter(counts)
  const stays = ({ name }: DeployNode): boolean => name !== 'cp' && Number(name.slice(1)) <= worker_count
  return nodes.flatMap((node) => {
    const { machine_id } = node
    if (!node.registered || node.lost_at !== null || machine_id === null || !stays(node)) return []
    const here = running.filter((one) => one.node === node.name)
    return [
      {
        node: { ...node, machine_id },
        memory_mib: here.reduce((sum, one) => sum + one.memory_mib, 0),
        replicas: here.length,
        ports: new Set(here.flatMap(({ machine_ports }) => machine_ports)),
        own: 0,
      },
    ]
  })
}

function choose(
  { replicas, memory_mib, port }: Pick<DeploymentDocument, 'replicas' | 'memory_mib' | 'port'>,
  loads: Load[],
  turn: Turn,
): Place[] {
  return Array.from({ length: replicas }, () => {
    const best = roomiest(loads, memory_mib)
    if (!best) throw new NoRoom(replicas, memory_mib)
    best.own++
    best.replicas++
    best.memory_mib += memory_mib
    const { name, machine_id, ip_address } = best.node
    const machine_port = port === null ? null : freePort(best.ports, turn)
    return { service_id: newId(), node: name, machine_id, ip_address, machine_port }
  })
}

function freePort(taken: Set<number>, turn: Turn): number {
  const offset = Array.from({ length: ports.count }, (_, i) => (turn.next + i) % ports.count).find(
    (one) => !taken.has(ports.first + one),
  )
  if (offset === undefined)
    throw new Problem(409, 'no_port', 'No port is free', 'The worker has no free port')
  turn.next = offset + 1
  taken.add(ports.first + offset)
  return ports.first + offset
}

/** The workers have too little memory. */
export class NoRoom extends Problem {
  constructor(replicas: number, memoryMib: number) {
    const what = replicas === 1 ? 'a replica' : `${replicas} replicas`
    const detail = `The workers have too little free memory for ${what} of ${memoryMib} MiB: add workers, or use larger ones`
    super(409, 'no_room', 'The workers are full', detail)
  }
}
