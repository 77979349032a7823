import { durable } from '../durable.ts'
import { remove } from '../remove.ts'
import { together } from '../together.ts'
import { endDeployments } from './applications.ts'
import { takeAway } from './attachments.ts'
import { domains } from './domains.ts'
import {
  deployments,
  makeNode,
  platform,
  register,
  removeNode,
  restart,
  say,
  type Server,
} from './machines.ts'

/** Makes what is missing, and changes and removes what is not as the record says. */
async function bringAbout(work: Server): Promise<void> {
  const { id, carryOut } = work
  const {
    machine_kind: kind,
    restarts,
    missing,
    extra,
    resize,
    grow,
    lb_id,
  } = await platform.planDeployServer(id)

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
    await carryOut({ kind, id: machine_id }, 'update', size)
    if (restarts) await restart(work, name, { kind, id: machine_id })
    await platform.noteNode(id, name, { instance_type })
  }
  for (const { name, machine_id, disk_id, size_gib } of grow) {
    await say(work, `growing the disk of ${name}`)
    await carryOut({ kind: 'disk', id: disk_id }, 'update', { size_gib })
    if (restarts && machine_id !== null) await restart(work, name, { kind, id: machine_id })
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
    const { load_balancer, container, vm, disk, attachments = [] } = await platform.partsOfDeployServer(id)
    if (attachments.length > 0) await say(work, 'detaching its databases from instances')
    for (const attachment of attachments) await takeAway(attachment)
    await say(work, 'cancelling deployments')
    await endDeployments({ deploy_server_id: id })
    await say(work, 'deleting the machines and the load balancer')
    await together([
      ...load_balancer.map((one) => remove(work, 'load_balancer', one)),
      ...container.map((one) => remove(work, 'container', one)),
      ...vm.map((one) => remove(work, 'vm', one)),
    ])
    const certificates = await domains.certificatesOfDomains(id)
    await together([
      ...disk.map((one) => remove(work, 'disk', one)),
      ...certificates.map((one) => remove(work, 'certificate', one)),
    ])
    await platform.removeDeployNetwork(id)
    await deployments.forgetApplications(id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
