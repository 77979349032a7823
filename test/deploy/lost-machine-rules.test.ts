import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Activity } from '../../models/activity.ts'
import { Container } from '../../models/compute/containers.ts'
import type { ApplicationDocument } from '../../models/deploy/applications.ts'
import {
  type DeployNode,
  DeployServer,
  type DeployServerDocument,
} from '../../models/deploy/deploy-servers.ts'
import { Deployment, type DeploymentDocument } from '../../models/deploy/deployments.ts'
import { rescueDeployServers } from '../../models/deploy/lost-machines.ts'
import { Operation } from '../../models/operations.ts'
import { eventsOf } from '../support/clients/events.ts'
import { deployRecordsOf } from '../support/deploy-records.ts'
import { eventually } from '../support/eventually.ts'
import { insertHost } from '../support/inserted-hosts.ts'
import { makeTenant } from '../support/tenants.ts'

// What the platform decides about machines on lost hosts. These records are of machines on no engine; lost-machines.test.ts
// loses hosts with machines. The stack's workers look at the same records, and `rescued_at` keeps them from repairs.

const minuteMs = 60_000
const ago = (ms: number) => new Date(Date.now() - ms)

let host_id: string
beforeAll(async () => {
  host_id = (await insertHost({ unreachable_since: ago(10 * minuteMs) }))._id
})

/** A deploy server of a tenant of its own. Its lost worker `w2` has the volumes of an application, and stays. */
async function losing(of: Partial<DeployServerDocument> = {}) {
  const { id: tenant_id, owner } = await makeTenant()
  const records = deployRecordsOf(tenant_id)
  const worker = await records.node(null, { name: 'w1' })
  const lost = await records.node(host_id, { name: 'w2', lost_at: ago(5 * minuteMs) })
  const server = await records.server([worker, lost], { rescued_at: new Date(), ...of })
  await records.application(server, { volume_node: 'w2' })
  const serving = async (
    over: Partial<ApplicationDocument> = {},
    deployed: Partial<DeploymentDocument> = {},
  ) => {
    const application = await records.application(server, over)
    await records.deployment(application, [lost], deployed)
    return application
  }
  const movesOf = ({ _id: app_id }: ApplicationDocument) =>
    Deployment.find({ tenant_id, app_id, kind: 'move' }).sort({ number: -1 }).lean()
  return { tenant_id, owner, records, server, serving, movesOf }
}

/** A deploy server with a control plane that answers, and `w1` back at an engine that is not there. */
async function returning(over: Partial<DeployNode>[] = []) {
  const { id: tenant_id, owner } = await makeTenant()
  const records = deployRecordsOf(tenant_id)
  const cp = await records.node(null, { name: 'cp' })
  const back = await records.node(null, { name: 'w1', registered: false, joins_when_back: true })
  const others = over.map((one, index) => records.node(host_id, { name: `w${index + 2}`, ...one }))
  const server = await records.server([cp, back, ...(await Promise.all(others))], { lb_id: newId() })
  const begun = (count = 1) =>
    eventually(async () => {
      const all = await Operation.find({ tenant_id, resource_id: server._id }).sort({ created_at: 1 }).lean()
      return all.length === count && all.every(({ open }) => !open) && all
    })
  return { tenant_id, owner, server, begun }
}

/** The platform looks when the last repair is long enough ago. */
const look = () => rescueDeployServers(Date.now() + 2 * minuteMs)

describe('the rescue of lost machines', () => {
  test('moves the other applications if one is refused, and tells that one why', async () => {
    const { tenant_id, serving, movesOf } = await losing()
    const refused = await serving({}, { built: { build_id: newId(), digest: 'sha256:gone' } })
    const other = await serving()
    await look()
    expect(await movesOf(refused)).toEqual([])
    expect(await movesOf(other)).toHaveLength(1)
    const feed = await Activity.find({ tenant_id, resource_id: refused._id }).lean()
    expect(feed).toMatchObject([
      {
        kind: 'move_refused',
        message: `The platform cannot move ${refused.name} away from w2: The image of that release is no longer kept`,
      },
    ])
  })

  test('looks at the other deploy servers if it cannot look at some, and then fails', async () => {
    const [first, whole, last] = [await losing(), await losing(), await losing()]
    const broken = { _id: { $in: [first.server._id, last.server._id] } }
    await DeployServer.collection.updateMany(broken as object, { $set: { rescued_at: 'never' } })
    const app = await whole.serving()
    const failed = await look().catch((error: unknown) => error)
    await DeployServer.collection.deleteMany(broken as object)
    expect(failed).toMatchObject({ errors: [expect.any(Error), expect.any(Error)] })
    expect(await whole.movesOf(app)).toHaveLength(1)
  })

  test('waits longer after each move that failed, and tells the owner of the first alone', async () => {
    const { tenant_id, owner, server, serving, movesOf } = await losing()
    const events = eventsOf(owner, server._id)
    const { id } = await events.make({ url: 'https://hooks.example.com/' })
    const app = await serving({ memory_mib: 1000 }) // w1 has less
    const ended = (count: number) =>
      eventually(async () => {
        const moves = await movesOf(app)
        return moves.length === count && moves[0]?.operation_id === null && moves[0].ended_at?.getTime()
      })
    await look()
    for (const [failures, minutes] of [1, 2, 4, 8, 15].entries()) {
      const endedAt = await ended(failures + 1)
      const lookAfter = async (ms: number): Promise<void> => {
        await DeployServer.updateOne({ _id: server._id, tenant_id }, { $set: { rescued_at: null } })
        await rescueDeployServers(endedAt + ms)
      }
      await lookAfter(minutes * minuteMs - 1)
      expect(await movesOf(app)).toHaveLength(failures + 1)
      await lookAfter(minutes * minuteMs)
    }
    await ended(6)
    const told = (await events.deliveries(id)).map(({ kind, message }) => `${kind}: ${message}`)
    expect(told).toEqual([
      expect.stringMatching(
        /^application\.deploy_failed: row-.* v1 was not moved to another worker: The workers have too little/,
      ),
    ])
  })

  test('begins no move of an application that is being moved', async () => {
    const { records, serving, movesOf } = await losing()
    const app = await serving()
    await records.deployment(app, [], { kind: 'move', status: 'creating', operation_id: newId() })
    await look()
    expect(await movesOf(app)).toHaveLength(1)
  })

  test.each(['updating', 'replacing'] as const)(
    'notes that a machine of a deploy server is lost, and tells it, while that is %s',
    async (status) => {
      const { tenant_id, owner, server, serving, movesOf } = await losing({ rescued_at: null, status })
      const events = eventsOf(owner, server._id)
      const { id } = await events.make({ url: 'https://hooks.example.com/' })
      const its = { _id: server._id, tenant_id, 'nodes.name': 'w2' }
      await DeployServer.updateOne(its, { $set: { 'nodes.$.lost_at': null } })
      const app = await serving()
      await rescueDeployServers()
      const { nodes } = (await DeployServer.findOne(its).lean()) ?? {}
      expect(nodes).toMatchObject([{ lost_at: null }, { lost_at: expect.any(Date) }])
      expect((await events.deliveries(id)).map(({ kind }) => kind)).toEqual(['worker.lost'])
      expect(await movesOf(app)).toEqual([])
    },
  )

  test('has a worker join the Swarm that does not know it, once the control plane answers', async () => {
    const { id: tenant_id } = await makeTenant()
    const records = deployRecordsOf(tenant_id)
    const silent = await insertHost({ unreachable_since: new Date() }) // not given up for 30 s
    const cp = await records.node(silent._id, { name: 'cp' })
    const worker = await records.node(null, { name: 'w1', registered: false, joins_when_back: true })
    const { _id: resource_id } = await records.server([cp, worker])
    await rescueDeployServers()
    expect(await Operation.find({ tenant_id, resource_id }).lean()).toEqual([])
    await Container.updateOne({ _id: cp.machine_id, tenant_id }, { $set: { host_id: null } })
    await rescueDeployServers()
    const begun = await eventually(() =>
      Operation.findOne({ tenant_id, resource_id, open: { $ne: true } }).lean(),
    )
    expect(begun).toMatchObject({ verb: 'update', input: { joins: 'w1' }, requested_by: null })
  })

  test('waits for no worker in a change of the deploy server that joins when its host is back', async () => {
    const { owner, server } = await returning()
    const { operation } = await owner.deployServers.update(server._id, { tags: { team: 'shop' } })
    await operation.success()
  })

  test('tries the next repair after one that failed, a minute after its end', async () => {
    const { server, begun, tenant_id } = await returning([{ lost_at: ago(5 * minuteMs) }])
    await rescueDeployServers()
    await begun()
    const { rescued_at } = (await DeployServer.findOne({ _id: server._id, tenant_id }).lean()) ?? {}
    const ended = rescued_at?.getTime() ?? 0
    await rescueDeployServers(ended + minuteMs)
    expect(await begun()).toHaveLength(1)
    await rescueDeployServers(ended + minuteMs + 1)
    const [first, second] = await begun(2)
    expect(first).toMatchObject({ verb: 'replace', input: { name: 'w2' }, state: 'failed' })
    expect(second).toMatchObject({ verb: 'update', input: { joins: 'w1' } })
  })
})
