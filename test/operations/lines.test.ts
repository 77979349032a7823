import { afterEach, expect, test } from '@jest/globals'
import { readSettings } from '../../config.ts'
import { Operation } from '../../models/operations.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { eventually } from '../support/eventually.ts'
import { platform, type RoleName, startAll } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Of one tenant's operations of one kind and verb, only so many are under way: the others wait in their line.

const within = 600_000
const most = readSettings('worker').KEELSON_OPERATIONS_AT_ONCE

afterEach(async () => {
  await startAll()
  await removeTenants()
})

const crowd = (tenant: TestTenant, count: number) =>
  Promise.all(Array.from({ length: count }, () => tenant.containers.create()))

const countOf = ({ id }: TestTenant, of: object): Promise<number> =>
  Operation.countDocuments({ tenant_id: id, ...of }).exec()

const beganAt = async (id: string): Promise<number> =>
  (await Operation.findById(id).setOptions(everyTenant).lean())?.started_at?.getTime() ?? NaN

const waiting = { open: true as const, held_in: { $exists: true } }

test('of many creates only so many are under way, the oldest first, and other verbs do not wait for them', async () => {
  const tenant = await makeTenant()
  const { id } = await tenant.containers.make()
  await platform.kill('worker') // a busy api would accept the last creation when the first ones have ended
  const accepted = await crowd(tenant, most * 3)
  expect(await countOf(tenant, waiting)).toBe(most * 2)
  const [last] = await Operation.find({ tenant_id: tenant.id, ...waiting })
    .sort({ _id: -1 })
    .limit(1)
    .lean()
  expect(await tenant.owner.get(`/api/v1/operations/${last?._id}`)).toMatchObject({
    state: 'pending',
    step: 'waiting for its turn',
  })
  const { operation: stop } = await tenant.containers.stop(id)
  await platform.start('worker')
  await stop.success(within)
  await eventually(async () => {
    expect(await countOf(tenant, { state: 'running' })).toBeLessThanOrEqual(most)
    return (await countOf(tenant, { open: true })) === 0
  })
  const ends = await Promise.all(accepted.map(({ operation }) => operation.end()))
  expect(ends.map(({ state, step }) => ({ state, step }))).toEqual(
    ends.map(() => ({ state: 'succeeded', step: null })),
  )
  // Not its end: an engine that starts many containers at once may take long to stop one.
  expect(await beganAt(stop.id)).toBeLessThan(await beganAt(last?._id ?? ''))
})

test('what waits is cancelled and deleted without its turn', async () => {
  const tenant = await makeTenant()
  await crowd(tenant, most * 3)
  const held = await eventually(async () => {
    const found = await Operation.find({ tenant_id: tenant.id, ...waiting })
      .sort({ _id: -1 })
      .limit(2)
      .lean()
    return found.length === 2 && found
  })
  const [cancelled, deleted] = held
  const at = `/api/v1/operations/${cancelled?._id}`
  expect(await tenant.owner.ask('POST', `${at}/cancel`)).toMatchObject({ status: 202 })
  await (await tenant.containers.delete(deleted?.resource_id ?? '')).operation.success(within)
  await eventually(async () => (await tenant.owner.get<{ state: string }>(at)).state === 'cancelled')
  await eventually(async () => (await countOf(tenant, { open: true })) === 0)
  const states = await Operation.find({ tenant_id: tenant.id, state: { $ne: 'succeeded' } }).lean()
  expect(new Set(states.map(({ _id }) => _id))).toEqual(new Set([cancelled?._id, deleted?._id]))
})

const roles: RoleName[] = ['worker', 'api', 'temporal', 'mongodb']
test.each(sampled(roles, 1))('a line goes on after %s is killed', async (role) => {
  const tenant = await makeTenant()
  const accepted = await crowd(tenant, most * 3)
  await eventually(async () => (await countOf(tenant, waiting)) > 0)
  await platform.restartKilled(role)
  const ends = await Promise.all(accepted.map(({ operation }) => operation.end(within)))
  expect(ends.map(({ state }) => state)).toEqual(ends.map(() => 'succeeded'))
  expect(await countOf(tenant, { open: true })).toBe(0)
})
