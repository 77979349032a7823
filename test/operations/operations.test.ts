import { beforeAll, describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { Container } from '../../models/compute/containers.ts'
import { removeOldOperations } from '../../models/operation-retention.ts'
import { type Client, Operation, shell, sleeper } from '../support/client.ts'
import { endlessOperation } from '../support/endless.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { platform } from '../support/platform.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'

// What clients can do with an operation under way; operations on one resource never overlap.

let tenant: TestTenant
let stranger: Client
beforeAll(async () => {
  tenant = await makeTenant()
  stranger = (await makeTenant()).owner
})

const running = (operation: Operation) =>
  eventually(async () => {
    const now = await operation.now()
    return now.state === 'running' && now.step !== null && now
  })

/** Runs `work` while an absent host blocks all its tasks. */
async function whileHostIsAway<T>(work: () => Promise<T>): Promise<T> {
  await platform.kill('host')
  try {
    return await work()
  } finally {
    await platform.start('host')
  }
}

describe('an operation under way', () => {
  test('describes its step in plain words, and links to its workflow', async () => {
    const { operation } = await whileHostIsAway(async () => {
      const accepted = await tenant.containers.create()
      const { step, workflow_id, ...now } = await running(accepted.operation)
      expect(step).toMatch(/^[a-z, ]+$/)
      expect(now).toMatchObject({ verb: 'create', ended_at: null, requested_by: expect.any(String) })
      expect(now['workflow_url']).toMatch(new RegExp(`^http.*/${workflow_id}$`))
      return accepted
    })
    expect(await operation.end()).toMatchObject({ state: 'succeeded', ended_at: expect.any(String) })
  })

  test('answers ?wait when it ends, or as it is when the time is up', async () => {
    const { id } = await tenant.containers.make(
      shell('trap "sleep 2; exit" TERM; while :; do sleep 0.1; done'),
    )
    const { operation } = await tenant.containers.stop(id, { grace_sec: 30 })
    const begun = performance.now()
    expect(await tenant.owner.get(`${operation.path}?wait=0.5`)).toMatchObject({ ended_at: null })
    expect(performance.now() - begun).toBeGreaterThan(450)
    expect(await tenant.owner.get(`${operation.path}?wait=30`)).toMatchObject({ state: 'succeeded' })
    expect(performance.now() - begun).toBeLessThan(30_000)
    expect(await tenant.owner.ask('GET', `${operation.path}?wait=61`)).toMatchObject({ status: 400 })
  })

  test('blocks all other operations on its resource', async () => {
    await whileHostIsAway(async () => {
      const { id, operation } = await tenant.containers.create()
      const verbs = [
        ['PUT', '', { cpu_cores: 0.2 }],
        ['POST', '/stop'],
        ['POST', '/start'],
      ] as const
      for (const [method, verb, body] of verbs)
        expect(await tenant.owner.ask(method, `/api/v1/containers/${id}${verb}`, body)).toMatchObject({
          status: 409,
          body: { code: 'operation_in_progress', operation_id: operation.id },
        })
      const { operation_id } = await tenant.containers.get(id)
      expect(operation_id).toBe(operation.id)
    })
  })

  test('blocks no other resource', async () => {
    const deaf = await tenant.containers.make(shell('trap "" TERM; while :; do sleep 1; done'))
    const slow = await tenant.containers.stop(deaf.id, { grace_sec: 240 })
    await tenant.containers.make()
    expect((await slow.operation.now()).state).toBe('running')
    await engine.kill(deaf.id)
    expect(await slow.operation.end()).toMatchObject({ state: 'succeeded' })
  })
})

describe('cancel', () => {
  test('of a create leaves nothing on the engine and frees the quota', async () => {
    const other = await makeTenant()
    const { id, operation } = await whileHostIsAway(async () => {
      const accepted = await other.containers.create()
      await running(accepted.operation)
      expect(await accepted.operation.cancel()).toMatchObject({
        status: 202,
        body: { cancel_requested_at: expect.any(String) },
      })
      return accepted
    })
    expect(await operation.end()).toMatchObject({ state: 'cancelled', error: { code: 'cancelled' } })
    expect(await other.containers.get(id)).toMatchObject({ status: 'error', operation_id: null })
    expect(await engine.withLabel('keelson.resource', id)).toEqual([])
    expect(await other.holds()).toEqual(holdsNothing)
  })

  test('of a create also removes a container that was already made', async () => {
    const other = await makeTenant()
    const moments = await engine.watch(other.id)
    const { id, operation } = await other.containers.create()
    await moments.next('create')
    await operation.cancel()
    const { state } = await operation.end()
    // The cancel may come too late: then the container runs, and nothing is half undone.
    const left = await engine.withLabel('keelson.resource', id)
    expect(left).toHaveLength(state === 'succeeded' ? 1 : 0)
    expect(await other.containers.get(id)).toMatchObject({
      status: state === 'succeeded' ? 'running' : 'error',
    })
    expect((await other.holds()).reservations).toBe(left.length)
  })

  test('of a stop keeps the container running, or restarts it', async () => {
    const { id } = await tenant.containers.make(shell('trap "" TERM; while :; do sleep 1; done'))
    const { operation } = await tenant.containers.stop(id, { grace_sec: 300 })
    await running(operation)
    await operation.cancel()
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    await eventually(async () => {
      const { status, desired_state, operation_id } = await tenant.containers.get(id)
      return (
        status === 'running' &&
        desired_state === 'running' &&
        !operation_id &&
        (await engine.only(id)).State.Running
      )
    })
  })

  test('is refused for an ended operation, and for a delete', async () => {
    const { id, operation } = await tenant.containers.create()
    await operation.success()
    expect(await operation.cancel()).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', state: 'succeeded' },
    })
    const deletion = await whileHostIsAway(async () => {
      const accepted = await tenant.containers.delete(id)
      expect(await accepted.operation.cancel()).toMatchObject({
        status: 409,
        body: { code: 'state_conflict' },
      })
      return accepted
    })
    await deletion.operation.success()
  })
})

test('a delete cancels a create under way, and leaves nothing', async () => {
  const other = await makeTenant()
  const { id, operation } = await whileHostIsAway(async () => {
    const create = await other.containers.create()
    await running(create.operation)
    const deletion = await other.containers.delete(create.id)
    expect(await create.operation.now()).toMatchObject({ state: 'cancelled', error: { code: 'superseded' } })
    expect(await other.owner.ask('DELETE', `/api/v1/containers/${create.id}`)).toMatchObject({
      status: 409,
      body: { code: 'operation_in_progress' },
    })
    return deletion
  })
  await operation.success()
  expect(await other.owner.ask('GET', `/api/v1/containers/${id}`)).toMatchObject({ status: 404 })
  expect(await engine.withLabel('keelson.resource', id)).toEqual([])
  expect(await other.holds()).toEqual(holdsNothing)
})

test('a delete cancels a create at the moment its container is made', async () => {
  const other = await makeTenant()
  const moments = await engine.watch(other.id)
  const { id } = await other.containers.create()
  await moments.next('create')
  await (await other.containers.delete(id)).operation.success()
  expect(await engine.withLabel('keelson.resource', id)).toEqual([])
  expect(await other.holds()).toEqual(holdsNothing)
})

test('operations are removed after their lifetime, open ones are not, and the count of lists follows', async () => {
  const own = await makeTenant()
  const ended = await (await own.containers.create({ start: false })).operation.success()
  const open = await endlessOperation(own.id)
  const created_at = new Date(Date.now() - 3 * 86_400_000)
  await mongoose.connection
    .collection('operations')
    .updateMany({ tenant_id: own.id }, { $set: { created_at } })
  expect(await own.owner.get('/api/v1/operations')).toMatchObject({ total: 2 })
  while (await removeOldOperations(2)) {} // as a worker does
  expect(await own.owner.get('/api/v1/operations')).toMatchObject({ total: 1, items: [{ id: open }] })
  expect(await own.owner.ask('GET', `/api/v1/operations/${ended.id}`)).toMatchObject({ status: 404 })
})

test('what has failed is limited by tenant: more is refused until some is deleted', async () => {
  const own = await makeTenant()
  const { id } = await own.containers.make({ start: false })
  const kept = await Container.findOne({ _id: id, tenant_id: own.id }).lean()
  const copies = Array.from({ length: 200 }, (_, i) => ({
    ...kept,
    _id: newId(),
    name: `failed-${i}`,
    status: 'error',
  }))
  await Container.collection.insertMany(copies as never)
  const create = () => own.owner.ask('POST', '/api/v1/containers', sleeper({ start: false }))
  expect(await create()).toMatchObject({ status: 409, body: { code: 'too_many_failed' } })
  expect(await own.owner.ask('POST', '/api/v1/disks', { name: 'd', size_gib: 1 })).toMatchObject({
    status: 202,
  })
  await Container.collection.deleteMany({ tenant_id: own.id, status: 'error' })
  expect(await create()).toMatchObject({ status: 202 })
})

test('another tenant’s operation is answered with 404', async () => {
  const { operation } = await tenant.containers.create()
  for (const [method, path] of [
    ['GET', operation.path],
    ['GET', `${operation.path}?wait=5`],
    ['POST', `${operation.path}/cancel`],
    ['GET', `/api/v1/operations/${newId()}`],
  ] as const)
    expect(await stranger.ask(method, path)).toMatchObject({ status: 404, body: { code: 'not_found' } })
  expect(await operation.end()).toMatchObject({ state: 'succeeded' })
  expect(await stranger.get('/api/v1/operations')).toMatchObject({ total: 0 })
})

test('a viewer can follow operations and cannot cancel them', async () => {
  const viewer = await tenant.user('viewer')
  const { operation } = await tenant.containers.create()
  expect(await viewer.ask('POST', `${operation.path}/cancel`)).toMatchObject({
    status: 403,
    body: { permission: 'operations:update' },
  })
  await new Operation(viewer, operation.path).success()
})
