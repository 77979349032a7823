import type { DeployPlan } from '../../activities/deploy/deploy-servers.ts'
import { durable } from '../durable.ts'
import { remove } from '../remove.ts'
import { together } from '../together.ts'
import { endDeployments } from './applications.ts'
import { takeAway } from './attachments.ts'
import { domains } from './domains.ts'
import { joinLater } from './machine-replacement.ts'
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

/** Makes the machines that are missing, in batches: those of one are made at once. `keep` follows each. */
async function makeMissing(
  work: Server,
  { lb_id, missing }: Pick<DeployPlan, 'lb_id' | 'missing'>,
  batches: string[][],
  keep: (names: string[]) => Promise<void>,
): Promise<void> {
  const { id, carryOut } = work
  if (missing.length === 0 && lb_id !== null) return
  await say(work, 'making the network and the machines')
  const { load_balancer } = await platform.makeDeployNetwork(id)
  const makeBalancer = async (): Promise<void> => {
    if (lb_id !== null) return
    work.undo(() => platform.noteLoadBalancer(id, null))
    const made = await carryOut({ kind: 'load_balancer' }, 'create', load_balancer, { key: 'ingress' })
    await platform.noteLoadBalancer(id, made)
  }
  for (const [index, names] of batches.entries()) {
    if (index > 0) await say(work, `making the machine ${names.join(' and ')}`)
    await together([...(index === 0 ? [makeBalancer()] : []), ...names.map((name) => makeNode(work, name))])
    await say(work, 'joining the machines into a Swarm')
    if (names.includes('cp')) await register(work, 'cp')
    await together(names.filter((name) => name !== 'cp').map((name) => register(work, name)))
    await keep(names)
  }
}

/** Changes and removes what is not as the record says. */
async function changeOthers(
  work: Server,
  { machine_kind: kind, restarts, extra, resize, grow }: DeployPlan,
): Promise<void> {
  const { id, carryOut, undo } = work
  for (const { name, machine_id, instance_type, size } of resize) {
    await say(work, `resizing ${name}`)
    undo(() => platform.noteSizes(id, name))
    await carryOut({ kind, id: machine_id }, 'update', size)
    if (restarts) await restart(work, name, { kind, id: machine_id })
    await platform.noteNode(id, name, { instance_type })
  }
  for (const { name, machine_id, disk_id, size_gib } of grow) {
    await say(work, `growing the disk of ${name}`)
    undo(() => platform.noteSizes(id, name))
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
    const { id, undo } = work
    undo(() => platform.removeDeployNetwork(id))
    const plan = await platform.planDeployServer(id)
    await makeMissing(work, plan, [plan.missing], async () => {})
    await changeOthers(work, plan)
    return ready
  },
  { onFailure: 'error' },
)

/**
 * Machines come, change and go one at a time. A failure or cancel leaves those that have joined: they may serve, and have
 * volumes. With `joins` only that worker joins.
 */
export const updateDeployServer = durable<{ joins?: string }>(async (work) => {
  const { id, operation_id, settle, input } = work
  if (input.joins !== undefined) {
    await joinLater(work, input.joins)
    return ready
  }
  const plan = await platform.planDeployServer(id)
  const batches = plan.missing.length > 0 ? plan.missing.map((name) => [name]) : [[]]
  await makeMissing(work, plan, batches, (names) =>
    settle(() => together(names.map((name) => platform.keepWorker(operation_id, name)))),
  )
  await changeOthers(work, plan)
  return ready
})

export const deleteDeployServer = durable(
  async (work) => {
    const { id } = work
    const { load_balancer, container, vm, disk, attachments } = await platform.partsOfDeployServer(id)
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
