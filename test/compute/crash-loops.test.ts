import { afterEach, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Activity } from '../../models/activity.ts'
import { Host } from '../../models/compute/hosts.ts'
import { place } from '../../models/compute/placement.ts'
import { release, reserve } from '../../models/compute/reservations.ts'
import { type Client, type ContainerBody, shell } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { allHosts, closeFurther, open, type TestHost } from '../support/hosts.ts'
import { isLong } from '../support/long.ts'
import { platform } from '../support/platform.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// What one tenant's containers that end again and again, and an engine that does not answer, do to a host: nothing to its
// reachability.

const many = isLong ? 200 : 40
// The pauses before the tenth restart are five minutes in all.
const restarts = isLong ? 10 : 5

let tenant: TestTenant
let operator: Client
let host: TestHost
beforeAll(async () => {
  tenant = await makeTenant()
  operator = await tenant.user('operator')
  host = (await allHosts())[0] as TestHost
  await open([host])
})
const hostNow = () => operator.get<Record<string, unknown>>(`/api/v1/platform/hosts/${host.id}`)

const dockerPid = async (): Promise<number> =>
  (await platform.roles()).find(({ name }) => name === host.roles.docker)?.pid ?? 0
afterEach(async () => {
  process.kill(await dockerPid(), 'SIGCONT')
  await closeFurther()
})

const isLooping = ({ status, status_reason, exit_code }: ContainerBody): boolean =>
  status === 'running' && /^crash_looping: .*exit code 3;/.test(String(status_reason)) && exit_code === 3

test(`${many} containers that end again and again leave their host reachable, and others start`, async () => {
  const looper = await makeTenant()
  const witness = await tenant.containers.make()
  // Long enough not to have ended at once, also on a busy machine, and short enough to be a crash loop.
  const loops = await Promise.all(
    Array.from({ length: many }, () => looper.containers.create(shell('sleep 5; exit 3'))),
  )
  for (const { id } of loops) await eventually(async () => isLooping(await looper.containers.get(id)))
  await tenant.containers.make()
  for (const { id } of loops)
    await eventually(async () => Number((await looper.containers.get(id))['restart_count']) >= restarts, {
      withinMs: 1_200_000,
    })
  await tenant.containers.make()

  expect(await hostNow()).toMatchObject({ status: 'active', engine_silent_since: null })
  // A host that is unreachable for a moment leaves an entry in the feeds of its instances.
  expect(await tenant.containers.activity(witness.id)).toMatchObject([{ kind: 'created' }])
  const feeds = await Activity.aggregate<{ entries: number }>([
    { $match: { tenant_id: looper.id } },
    { $group: { _id: '$resource_id', entries: { $sum: 1 } } },
  ])
  expect(Math.max(...feeds.map(({ entries }) => entries))).toBeLessThanOrEqual(20)
  expect(feeds).toHaveLength(many)

  // A stop ends a loop, and its host does not restart it.
  const [{ id } = { id: '' }] = loops
  await (await looper.containers.stop(id)).operation.success()
  expect(await looper.containers.get(id)).toMatchObject({ status: 'stopped', status_reason: null })
  const deletions = await Promise.all(loops.map((one) => looper.containers.delete(one.id)))
  for (const { operation } of deletions) await operation.success()
  expect(await Activity.countDocuments({ tenant_id: looper.id })).toBe(0)
}, 1_800_000)

test('a host whose engine is frozen stays reachable, says so, and gets nothing new until it answers', async () => {
  const witness = await tenant.containers.make()
  const { last_report_at } = await hostNow()
  process.kill(await dockerPid(), 'SIGSTOP')
  // Longer than a silent host takes to become unreachable.
  const frozen = await eventually(async () => {
    const now = await hostNow()
    const since = now['engine_silent_since']
    return (
      typeof since === 'string' &&
      Date.parse(String(now['last_heard_at'])) - Date.parse(since) > 40_000 &&
      now
    )
  })
  expect(frozen).toMatchObject({ status: 'active' })
  expect(Date.parse(String(frozen['last_report_at']))).toBeGreaterThan(Date.parse(String(last_report_at)))
  expect(await tenant.containers.get(witness.id)).toMatchObject({ status: 'running', operation_id: null })
  expect(await tenant.containers.activity(witness.id)).toMatchObject([{ kind: 'created' }])
  const id = newId()
  await reserve(id, tenant.id, { cpu_milli: 100, memory_mib: 16, disk_gib: 0 })
  await expect(place(id, {})).rejects.toThrow(/1 with an engine that does not answer/)
  await release(id)

  process.kill(await dockerPid(), 'SIGCONT')
  await eventually(async () => (await hostNow())['engine_silent_since'] === null)
  await tenant.containers.make()
  expect((await tenant.containers.get(witness.id))['started_at']).toBe(witness['started_at'])
  expect(await Host.findById(host.id).lean()).toMatchObject({ unreachable_since: null })
})
