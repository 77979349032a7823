import { beforeAll, expect, test } from '@jest/globals'
import { makeDatabaseActivities } from '../../activities/deploy/databases.ts'
import { makeDeployServerActivities } from '../../activities/deploy/deploy-servers.ts'
import { transaction } from '../../models/database.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { acceptMachineReplacement } from '../../models/deploy/machine-replacement.ts'
import { sealRevision, Service } from '../../models/deploy/services.ts'
import { Operation } from '../../models/operations.ts'
import { databaseRecordsOf } from '../support/database-records.ts'
import { deployRecordsOf } from '../support/deploy-records.ts'
import { atEndOfFile } from '../support/end-of-file.ts'
import { eventually } from '../support/eventually.ts'
import { makeTenant } from '../support/tenants.ts'

// What comes of the volumes of a worker that is replaced, on records of machines that are on no engine.

let tenant_id: string
let records: ReturnType<typeof deployRecordsOf>
let databases: ReturnType<typeof databaseRecordsOf>
beforeAll(async () => {
  tenant_id = (await makeTenant()).id
  records = deployRecordsOf(tenant_id)
  databases = databaseRecordsOf(tenant_id)
  atEndOfFile(async () => {
    await Service.deleteMany({ tenant_id })
  })
})

const servers = makeDeployServerActivities({ machineImage: '' })
const by = () => ({ tenant_id, id: null })
const keeping = { name: 'w1', discard_volumes: false }

/** A deploy server with one worker. */
async function oneWorker() {
  const server = await records.server([await records.node(null, { name: 'w1' })], { rescued_at: new Date() })
  const now = async () => DeployServer.findOne({ _id: server._id, tenant_id }).orFail().lean()
  /** A database there, which has volumes on the worker, or none yet. */
  const database = (volume_node: string | null) =>
    databases.database({ deploy_server_id: server._id, volume_node })
  return { server, now, database }
}

test('a replacement fails without effect if a database was placed on the worker since its acceptance', async () => {
  const { server, now, database } = await oneWorker()
  const before = (await now()).nodes
  const { name, _id } = await transaction(async () => {
    const { operation } = await acceptMachineReplacement(by(), server._id, keeping)
    return { _id: operation._id, name: (await database('w1')).name }
  }, server._id)
  const ended = await eventually(() => Operation.findOne({ _id, tenant_id, open: { $ne: true } }).lean())
  const detail = `w1 has the volumes of the database ${name}; \`discard_volumes\` destroys them`
  expect(ended).toMatchObject({ state: 'failed', error: { code: 'storage_on_worker', detail } })
  expect(await now()).toMatchObject({ status: 'ready', nodes: before })
})

test('of a replacement and a placement at once, the second one is refused', async () => {
  for (let round = 0; round < 4; round++) {
    const { server, now, database } = await oneWorker()
    const { _id } = await database(null)
    const close = () => servers.closeWorker(server._id, 'w1', false)
    const place = () => makeDatabaseActivities().placeDatabase(_id)
    const both = await Promise.allSettled(round % 2 ? [place(), close()] : [close(), place()])
    const refusals = both.flatMap((one) => (one.status === 'rejected' ? [one.reason.type] : []))
    const { registered } = (await now()).nodes[0] ?? {}
    expect([registered, refusals]).toEqual([registered, [registered ? 'storage_on_worker' : 'no_room']])
  }
})

test('a worker whose volumes are to be discarded takes nothing more from the first step on, also if that is repeated', async () => {
  const { server, now, database } = await oneWorker()
  await database('w1')
  for (const time of ['first', 'repeated']) {
    await servers.closeWorker(server._id, 'w1', true)
    expect([time, (await now()).nodes[0]?.registered]).toEqual([time, false])
  }
})

test('a service that gets its first volume by a change under way keeps its worker', async () => {
  const { server } = await oneWorker()
  const service = async (volumes: string[]) => {
    const revision = (plan: string[]) =>
      sealRevision(tenant_id, {
        text: '',
        envs: {},
        generated: {},
        plan: { containers: [], networks: [], volumes: plan },
      })
    const sealed = { revision_sealed: await revision([]), next_sealed: await revision(volumes) }
    const its = { tenant_id, deploy_server_id: server._id, name: `notes-${volumes.length}`, tags: {} }
    const made = { status: 'updating', within_sec: 60, volume_node: 'w1' } as const
    await new Service({ ...its, ...made, ...sealed }).save()
  }
  await service(['content'])
  const refused = acceptMachineReplacement(by(), server._id, keeping)
  await expect(refused).rejects.toMatchObject({
    code: 'storage_on_worker',
    message: expect.stringContaining('notes-1'),
  })
  await Service.deleteMany({ tenant_id })
  await service([])
  await servers.closeWorker(server._id, 'w1', false)
})
