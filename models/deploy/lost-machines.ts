import { Problem } from '../../lib/problem.ts'
import type { By } from '../acceptance.ts'
import { noteActivity } from '../activity.ts'
import { transaction } from '../database.ts'
import { Host } from '../compute/hosts.ts'
import { findInstances } from '../compute/instance-kinds.ts'
import type { Accepted } from '../operations.ts'
import { everyTenant } from '../tenant-scope.ts'
import type { ApplicationDocument } from './applications.ts'
import { acceptDeployment } from './deployment-acceptance.ts'
import { acceptJoin } from './deploy-server-update.ts'
import type { EventKind } from './event-subscriptions.ts'
import { tellEvent } from './events.ts'
import { DeployServer, type DeployNode, type DeployServerDocument } from './deploy-servers.ts'
import { acceptMachineReplacement } from './machine-replacement.ts'
import { mayMoveAgain } from './moves.ts'
import { servingOn } from './replicas.ts'
import { withVolumesOn } from './storages.ts'

// Without room elsewhere a replacement fails. It is tried again after this time.
const againAfterMs = 60_000

/**
 * For how long a host is unreachable before its machines are replaced. That destroys their disks, and a host that is slow
 * or restarts its program may well give no sign of life for the 30 s before.
 */
const givenUpAfterMs = 30_000

/**
 * Notes which machines of deploy servers are on hosts that do not answer, and replaces them by operations of the platform. A
 * worker with volumes stays, because only its host has them: its other applications move. Called again and again; a repair waits
 * until the deploy server is ready and no operation is open. Looks at all deploy servers, and then throws an AggregateError if it
 * failed for some.
 */
export async function rescueDeployServers(now = Date.now()): Promise<void> {
  const lost = await machinesOnLostHosts()
  const unmade = { 'nodes.machine_id': null } // an earlier replacement failed
  const known = { nodes: { $elemMatch: { lost_at: { $ne: null } } } } // of any: the others have null
  const outside = { 'nodes.joins_when_back': true }
  const servers = await DeployServer.find({
    status: { $nin: ['creating', 'deleting'] },
    $or: [{ 'nodes.machine_id': { $in: [...lost.keys()] } }, unmade, known, outside],
  })
    .setOptions(everyTenant)
    .lean()
  const failures: Error[] = []
  for (const server of servers)
    await lookAt(server, lost, now).catch((cause: unknown) =>
      failures.push(new Error(`the deploy server ${server._id} could not be looked at`, { cause })),
    )
  if (failures.length > 0) throw new AggregateError(failures, 'not all deploy servers could be looked at')
}

/** Notes which of its machines are lost, and begins to repair the first. */
async function lookAt(
  server: DeployServerDocument,
  lost: ReadonlyMap<string, number>,
  now: number,
): Promise<void> {
  for (const node of server.nodes) await noteReach(server, node, lost, now)
  if (server.status !== 'ready' || server.operation_id !== null) return
  const isDue = (server.rescued_at?.getTime() ?? 0) < now - againAfterMs
  const gone = server.nodes.filter(
    ({ machine_id }) => machine_id === null || (lost.get(machine_id) ?? now) < now - givenUpAfterMs,
  )
  const answers = ({ machine_id }: DeployNode): boolean => machine_id !== null && !lost.has(machine_id)
  const cp = server.nodes.find(({ name }) => name === 'cp')
  const back = cp && answers(cp) ? server.nodes.filter((node) => node.joins_when_back && answers(node)) : []
  if (isDue) await rescueFirst(server, { gone, back }, now)
}

/** The ids of the machines on unreachable hosts, with the time since when each is, in milliseconds. */
async function machinesOnLostHosts(): Promise<Map<string, number>> {
  const hosts = await Host.find({ unreachable_since: { $ne: null } }, { unreachable_since: 1 }).lean()
  if (hosts.length === 0) return new Map()
  const since = new Map(hosts.map(({ _id, unreachable_since }) => [_id, unreachable_since?.getTime() ?? 0]))
  const machines = await findInstances({ managed_by: { $ne: null }, host_id: { $in: [...since.keys()] } })
  return new Map(machines.map(({ instance: { _id, host_id } }) => [_id, since.get(host_id ?? '') ?? 0]))
}

/** Records that a machine's host stopped answering, or answers again. */
async function noteReach(
  { _id, tenant_id }: DeployServerDocument,
  { name, machine_id, lost_at }: DeployNode,
  lost: ReadonlyMap<string, number>,
  now: number,
): Promise<void> {
  const isLost = machine_id !== null && lost.has(machine_id)
  if (isLost === (lost_at !== null)) return
  const message = isLost ? `The host of ${name} does not answer` : `The host of ${name} answers again`
  const data = { name, machine_id }
  const isNoted = await transaction(async () => {
    const { modifiedCount } = await DeployServer.updateOne(
      { _id, tenant_id, nodes: { $elemMatch: { name, machine_id, lost_at } } },
      { $set: { 'nodes.$.lost_at': isLost ? new Date(now) : null } },
    )
    if (modifiedCount && isLost)
      await tellEvent({ tenant_id, deploy_server_id: _id, kind: lostKind(name), message, data })
    return modifiedCount > 0
  }, _id)
  const kind = isLost ? 'machine_lost' : 'machine_back'
  if (isNoted) await noteActivity({ tenant_id, resource_id: _id, kind, message, data })
}

const lostKind = (name: string): EventKind => (name === 'cp' ? 'control_plane.lost' : 'worker.lost')

/** Notes once that a machine has been replaced by this operation, and tells it. */
export async function noteReplaced(_id: string, name: string, replacement_id: string): Promise<void> {
  const server = await DeployServer.findById(_id).setOptions(everyTenant).lean()
  if (!server) return
  const { tenant_id, nodes } = server
  const data = { name, machine_id: nodes.find((node) => node.name === name)?.machine_id ?? null }
  const message = `${name} has been replaced by a new machine`
  const kind = name === 'cp' ? 'control_plane.replaced' : 'worker.replaced'
  const isNoted = await transaction(async () => {
    const { modifiedCount } = await DeployServer.updateOne(
      { _id, tenant_id, replacement_id: { $ne: replacement_id } },
      { $set: { replacement_id } },
    )
    if (modifiedCount) await tellEvent({ tenant_id, deploy_server_id: _id, kind, message, data })
    return modifiedCount > 0
  }, _id)
  if (isNoted) await noteActivity({ tenant_id, resource_id: _id, kind: 'machine_replaced', message, data })
}

/** What came of an attempt to repair something of a machine. */
type Attempt = 'begun' | 'refused' | 'needless'

/** Begins one repair: the next one has to wait for its end. One that fails must not keep the others waiting. */
async function rescueFirst(
  server: DeployServerDocument,
  { gone, back }: { gone: DeployNode[]; back: DeployNode[] },
  now: number,
): Promise<void> {
  const { _id, tenant_id } = server
  const rescued_at = new Date(now)
  for (const node of [...gone, ...back].toSorted((one, other) => triedAt(one) - triedAt(other))) {
    const attempt = back.includes(node) ? await join(server, node.name) : await rescue(server, node, now)
    if (attempt !== 'needless')
      await DeployServer.updateOne(
        { _id, tenant_id, 'nodes.name': node.name },
        { $set: { rescued_at, 'nodes.$.rescued_at': rescued_at } },
      )
    if (attempt === 'begun') return
  }
}

/** The control plane is the first: workers join it. */
const triedAt = ({ name, rescued_at }: DeployNode): number =>
  name === 'cp' ? 0 : (rescued_at?.getTime() ?? 0)

async function rescue(server: DeployServerDocument, node: DeployNode, now: number): Promise<Attempt> {
  const stays = node.machine_id !== null && (await withVolumesOn(server, node.name)).length > 0
  return stays ? moveOthers(server, node, now) : replace(server, node.name)
}

const replace = (server: DeployServerDocument, name: string): Promise<Attempt> =>
  beginRepair(server, name, `is replacing ${name}`, (by, id) =>
    acceptMachineReplacement(by, id, { name, discard_volumes: false }),
  )

const join = (server: DeployServerDocument, name: string): Promise<Attempt> =>
  beginRepair(server, name, `has ${name} join the Swarm`, (by, id) => acceptJoin(by, id, name))

async function beginRepair(
  { _id, tenant_id }: DeployServerDocument,
  name: string,
  does: string,
  accept: (by: By, id: string) => Promise<Accepted>,
): Promise<Attempt> {
  try {
    const { operation } = await accept({ tenant_id, id: null }, _id)
    await noteActivity({
      tenant_id,
      resource_id: _id,
      kind: 'rescue',
      message: `The platform ${does}`,
      data: { name, operation_id: operation._id },
    })
    return 'begun'
  } catch (error) {
    // Something has changed since: the next call sees it.
    if (!(error instanceof Problem)) throw error
    return 'needless'
  }
}

/** Releases the applications without volumes on other workers. */
async function moveOthers(
  server: DeployServerDocument,
  { name, lost_at }: DeployNode,
  now: number,
): Promise<Attempt> {
  const hasOther = server.nodes.some((node) => !['cp', name].includes(node.name) && node.lost_at === null)
  const serving = hasOther ? await servingOn(server._id, name) : []
  const attempts: Attempt[] = []
  for (const { application } of serving)
    if (application.volume_node !== name && (await mayMoveAgain(application, lost_at ?? new Date(now), now)))
      attempts.push(await move(application, name))
  return attempts.find((one) => one === 'begun') ?? attempts[0] ?? 'needless'
}

async function move({ _id, tenant_id, name: app }: ApplicationDocument, node: string): Promise<Attempt> {
  try {
    const message = `the host of ${node} does not answer`
    await acceptDeployment({ tenant_id, id: null }, { app_id: _id, kind: 'move', message })
    return 'begun'
  } catch (error) {
    if (!(error instanceof Problem)) throw error
    const message = `The platform cannot move ${app} away from ${node}: ${error.message}`
    const data = { name: node, code: error.code }
    await noteActivity({ tenant_id, resource_id: _id, kind: 'move_refused', message, data })
    return 'refused'
  }
}
