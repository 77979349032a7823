import { resolve } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { bundleWorkflowCode, DefaultLogger, NativeConnection, Worker } from '@temporalio/worker'
import mongoose from 'mongoose'
import { makeChildActivities } from '../../activities/child-operations.ts'
import { failures } from '../../activities/failures.ts'
import { makeOperationActivities } from '../../activities/operations.ts'
import { newId } from '../../lib/ids.ts'
import { startOptions } from '../../lib/operation-workflows.ts'
import { dataConverter, platformCodec, temporalClient } from '../../lib/temporal.ts'
import { acceptCreate, Operation, type OperationDocument } from '../../models/operations.ts'
import { requestCancel } from '../../models/operation-cancels.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../../models/resources.ts'
import { states } from '../../models/states.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { newContainer } from '../support/new-instances.ts'
import type { PairInput } from '../support/pair-workflow.ts'
import { platform, startAll } from '../support/platform.ts'
import { stackSettings } from '../support/stack.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'

// An operation made of operations: a resource of the tests' own, whose workflow runs here and creates containers on the platform.

const pairStates = states({ creating: {}, active: { delete: 'deleting' }, error: { delete: 'deleting' } })
const pairs = defineResource(
  'pair',
  mongoose.model<ResourceDocument>('Pair', resourceSchema<ResourceDocument>({}, pairStates, 'pairs')),
  pairStates,
)

const settings = stackSettings()
const taskQueue = `pairs-${newId()}`
const client = temporalClient(settings)
let worker: Worker
let working: Promise<void>
let tenant: TestTenant

beforeAll(async () => {
  tenant = await makeTenant()
  worker = await Worker.create({
    connection: await NativeConnection.connect({ address: settings.KEELSON_TEMPORAL_ADDRESS }),
    namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
    taskQueue,
    workflowBundle: await bundleWorkflowCode({
      workflowsPath: resolve(import.meta.dirname, '../support/pair-workflow.ts'),
      logger: new DefaultLogger('ERROR'),
    }),
    activities: { ...makeOperationActivities({ client }), ...makeChildActivities({ client }) },
    dataConverter: dataConverter(platformCodec(settings)),
    interceptors: { activity: [failures] },
  })
  working = worker.run()
})

afterEach(startAll)

afterAll(async () => {
  worker.shutdown()
  await working
})

const container = (over: object = {}) => newContainer(`test-${newId().slice(-12)}`, over)

/** Begins a pair: as someone's child, since the platform's dispatcher does not know its workflow. */
async function begin(over: Partial<PairInput> = {}): Promise<OperationDocument> {
  const input = { containers: [container(), container()], fails: false, bears: false, ...over }
  const { operation } = await acceptCreate({
    resource: pairs,
    tenantId: tenant.id,
    requestedBy: null,
    fields: { name: newId(), tags: {}, managed_by: null },
    input,
    parent: { id: newId(), key: 'test' },
  })
  await client.workflow.start('createPair', { ...startOptions(operation), taskQueue })
  return operation
}

const now = (_id: string) => Operation.findOne({ _id, tenant_id: tenant.id }).lean()
const endOf = (id: string) =>
  eventually(async () => {
    const operation = await now(id)
    return operation?.open ? null : operation
  })
const childrenOf = async (id: string) =>
  (
    await tenant.owner.get<{ items: { id: string; resource_id: string; verb: string; state: string }[] }>(
      `/api/v1/operations?parent_id=${id}&order=asc&limit=100`,
    )
  ).items
const nothingIsLeft = async () => {
  expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
  expect(await tenant.holds()).toEqual(holdsNothing)
}
const removeAll = async () => {
  const { items } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/containers')
  await Promise.all(items.map(async ({ id }) => (await tenant.containers.delete(id)).operation.success()))
}

test('a step that writes what its model refuses ends the operation, without the reason', async () => {
  const { _id: id } = await begin({ containers: [container({ cpu_cores: 'many' as unknown as number })] })
  expect(await endOf(id)).toMatchObject({
    state: 'failed',
    error: { code: 'internal', status: 500, detail: 'The platform failed; its operators can see why' },
  })
  expect(await childrenOf(id)).toEqual([])
  await nothingIsLeft()
})

test('an operation creates others’ resources by operations of their own, which it lists', async () => {
  const { _id: id } = await begin()
  expect(await endOf(id)).toMatchObject({ state: 'succeeded', error: null })
  const children = await childrenOf(id)
  expect(children).toMatchObject([
    { verb: 'create', state: 'succeeded', parent_id: id },
    { verb: 'create', state: 'succeeded', parent_id: id },
  ])
  expect(await tenant.owner.get(`/api/v1/operations/${children[0]?.id}`)).toMatchObject({ parent_id: id })
  expect(await engine.withLabel('keelson.tenant', tenant.id)).toHaveLength(2)
  await removeAll()
})

test('one that fails deletes what its children created', async () => {
  const { _id: id } = await begin({ fails: true })
  expect(await endOf(id)).toMatchObject({ state: 'failed', error: { code: 'misfit' } })
  expect((await childrenOf(id)).map(({ verb, state }) => [verb, state])).toEqual([
    ['create', 'succeeded'],
    ['create', 'succeeded'],
    ['delete', 'succeeded'],
    ['delete', 'succeeded'],
  ])
  await nothingIsLeft()
})

test('one whose child fails fails as the child did, and takes the child’s resource away', async () => {
  const { _id: id } = await begin({ containers: [container(), container({ command: ['no-such-command'] })] })
  const { error } = (await endOf(id)) ?? {}
  const [, second] = await childrenOf(id)
  expect(error?.code).toBe((await now(second?.id ?? ''))?.error?.code)
  await nothingIsLeft()
})

test('one whose child is refused fails by the refusal', async () => {
  const { _id: id } = await begin({ containers: [container({ cpu_cores: 1000 })] })
  expect(await endOf(id)).toMatchObject({ state: 'failed', error: { code: 'quota_exceeded' } })
  expect(await childrenOf(id)).toEqual([])
  await nothingIsLeft()
})

test('one that bears a failure goes on with the next child', async () => {
  const { _id: id } = await begin({ containers: [container({ cpu_cores: 1000 }), container()], bears: true })
  expect(await endOf(id)).toMatchObject({ state: 'succeeded' })
  expect(await engine.withLabel('keelson.tenant', tenant.id)).toHaveLength(1)
  await removeAll()
})

test('one that is cancelled cancels its child, and both leave nothing', async () => {
  await platform.kill('host') // which holds the child up
  const { _id: id, workflow_id } = await begin()
  const [child] = await eventually(async () => {
    const children = await childrenOf(id)
    return children[0]?.state === 'running' && children
  })
  await requestCancel(tenant.id, id)
  await client.workflow.getHandle(workflow_id).cancel()
  await eventually(async () => (await now(child?.id ?? ''))?.cancel_requested_at)
  await platform.start('host')
  expect(await endOf(id)).toMatchObject({ state: 'cancelled' })
  expect((await childrenOf(id)).map(({ verb, state }) => [verb, state])).toEqual([
    ['create', 'cancelled'],
    ['delete', 'succeeded'],
  ])
  await nothingIsLeft()
})

test('children end once though the platform’s worker is killed while they run', async () => {
  const seen = await engine.watch(tenant.id)
  const { _id: id } = await begin()
  await seen.next('create')
  await platform.kill('worker')
  await platform.start('worker')
  expect(await endOf(id)).toMatchObject({ state: 'succeeded', error: null })
  expect((await childrenOf(id)).map(({ state }) => state)).toEqual(['succeeded', 'succeeded'])
  expect(seen.count('create')).toBe(2)
  await removeAll()
})
