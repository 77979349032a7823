import { ApplicationFailure, proxyLocalActivities } from '@temporalio/workflow'
import type { DeployServerActivities, MachinePlace } from '../../activities/deploy/deploy-servers.ts'
import type { DeploymentActivities } from '../../activities/deploy/deployments.ts'
import { isFailure } from '../carry-out.ts'
import { durable, type Work } from '../durable.ts'
import { on } from '../hosts.ts'
import { together } from '../together.ts'
import { endDeployments } from './applications.ts'

const platform = proxyLocalActivities<DeployServerActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

const deployments = proxyLocalActivities<DeploymentActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

type Server = Work<unknown>

async function say({ id, progress }: Server, words: string): Promise<void> {
  progress(words)
  await platform.noteInitStep(id, words)
}

/** The host and address of a node’s machine. Throws if it is not on a host. */
async function placeOf(id: string, name: string): Promise<MachinePlace> {
  const place = (await platform.placesOfNodes(id))[name]
  if (place) return place
  throw ApplicationFailure.nonRetryable(`The machine ${name} is not on a host`, 'machine_missing')
}

/** Makes the disk and the machine of a node, or finds them. */
async function makeNode({ id, carryOut, undo }: Server, name: string): Promise<void> {
  undo(() => platform.dropNode(id, name))
  const { disk, machine, disk_id: diskThere, machine_id: machineThere } = await platform.planNode(id, name)
  const disk_id = diskThere ?? (await carryOut({ kind: 'disk' }, 'create', disk, { key: `disk ${name}` }))
  await platform.noteNode(id, name, { disk_id })
  if (machineThere) return
  const at = [{ disk_id, ...machine.at }]
  const fields = { ...machine.fields, disks: at }
  const machine_id = await carryOut({ kind: 'container' }, 'create', fields, { key: `machine ${name}` })
  await platform.noteNode(id, name, { machine_id })
}

/** Has the machine join the Swarm; the control plane forms it. */
async function register(work: Server, name: string): Promise<void> {
  const { id } = work
  const { host_id, machine_id, ip_address } = await placeOf(id, name)
  if (name === 'cp') await on(host_id).formSwarmOnHost(id, machine_id, ip_address)
  else {
    const manager = await placeOf(id, 'cp')
    await on(host_id).joinSwarmOnHost(id, machine_id, ip_address, manager.ip_address)
    await on(manager.host_id).admitNodeOnHost(manager.machine_id, machine_id, ip_address)
  }
  await platform.noteNode(id, name, { registered: true })
}

// A deployment of the tenant's own may take the place of a move, and may not have known that the worker goes.
const triesToMove = 5

/** Releases the applications of a worker again, on the workers that stay. Throws why one cannot move. */
async function moveApplications({ id, carryOut }: Server, name: string): Promise<void> {
  for (let tries = 1; tries <= triesToMove; tries++) {
    const apps = await deployments.applicationsOn(id, name)
    if (apps.length === 0) return
    const move = async (app_id: string): Promise<void> => {
      const fields = { app_id, kind: 'move', message: `${name} is being removed` }
      const rules = { key: `move ${app_id} from ${name}, ${tries}`, undo: null }
      try {
        await carryOut({ kind: 'deployment' }, 'create', fields, rules)
      } catch (error) {
        const isOther = ['superseded', 'cancelled', 'state_conflict', 'not_found'].some((code) =>
          isFailure(error, code),
        )
        if (!isOther) throw error // what became of it, the next look shows
      }
    }
    await together(apps.map(move))
  }
}

/** Takes a worker out of the Swarm, and deletes its machine with the disk. */
async function removeNode(work: Server, name: string): Promise<void> {
  const { id } = work
  const places = await platform.placesOfNodes(id)
  const [manager, place] = [places['cp'], places[name]]
  if (manager && place) {
    await say(work, `moving the applications away from ${name}`)
    await moveApplications(work, name)
    await on(manager.host_id).drainNodeOnHost(manager.machine_id, place.machine_id)
    await say(work, `removing ${name}`)
    await on(manager.host_id).removeNodeOnHost(manager.machine_id, place.machine_id)
  }
  await deleteNode(work, name)
}

/** Deletes a node’s machine and disk. */
async function deleteNode(work: Server, name: string): Promise<void> {
  const node = await platform.nodeAt(work.id, name)
  if (!node) return
  if (node.machine_id) await remove(work, 'container', node.machine_id)
  if (node.disk_id) await remove(work, 'disk', node.disk_id)
  await platform.dropNode(work.id, name)
}

async function remove({ carryOut }: Server, kind: string, id: string): Promise<void> {
  try {
    await carryOut({ kind, id }, 'delete', {}, { waitsForOthers: true, undo: null })
  } catch (error) {
    if (!isFailure(error, 'not_found')) throw error
  }
}

/** Makes what is missing, and changes and removes what is not as the record says. */
async function bringAbout(work: Server): Promise<void> {
  const { id, carryOut } = work
  const { missing, extra, resize, grow, lb_id } = await platform.planDeployServer(id)

  if (missing.length || lb_id === null) {
    await say(work, 'making the network and the machines')
    const { load_balancer } = await platform.makeDeployNetwork(id)
    const makeBalancer = async (): Promise<void> => {
      if (lb_id !== null) return
      work.undo(() => platform.noteLoadBalancer(id, null))
      const made = await carryOut({ kind: 'load_balancer' }, 'create', load_balancer, { key: 'ingress' })
      await platform.noteLoadBalancer(id, made)
    }
    await together([makeBalancer(), ...missing.map((name) => makeNode(work, name))])
    await say(work, 'joining the machines into a Swarm')
    if (missing.includes('cp')) await register(work, 'cp')
    await together(missing.filter((name) => name !== 'cp').map((name) => register(work, name)))
  }

  for (const { name, machine_id, instance_type, size } of resize) {
    await say(work, `resizing ${name}`)
    await carryOut({ kind: 'container', id: machine_id }, 'update', size)
    await platform.noteNode(id, name, { instance_type })
  }
  for (const { name, disk_id, size_gib } of grow) {
    await say(work, `growing the disk of ${name}`)
    await carryOut({ kind: 'disk', id: disk_id }, 'update', { size_gib })
    await platform.noteNode(id, name, { disk_gib: size_gib })
  }
  for (const name of extra) await removeNode(work, name)
}

const ready = { status: 'ready', init_step: null }

/** A failure removes everything that it has made. */
export const createDeployServer = durable(
  async (work) => {
    work.undo(() => platform.removeDeployNetwork(work.id))
    await bringAbout(work)
    return ready
  },
  { onFailure: 'error' },
)

/** Workers come and go one at a time. A failure removes the workers that it has added. */
export const updateDeployServer = durable(async (work) => {
  await bringAbout(work)
  return ready
})

export const deleteDeployServer = durable(
  async (work) => {
    const { id } = work
    const { load_balancer, container, disk } = await platform.partsOfDeployServer(id)
    await say(work, 'cancelling deployments')
    await endDeployments({ deploy_server_id: id })
    await say(work, 'deleting the machines and the load balancer')
    await together([
      ...load_balancer.map((one) => remove(work, 'load_balancer', one)),
      ...container.map((one) => remove(work, 'container', one)),
    ])
    await together(disk.map((one) => remove(work, 'disk', one)))
    await platform.removeDeployNetwork(id)
    await deployments.forgetApplications(id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
