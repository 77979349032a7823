import { afterAll, afterEach, describe, expect, test } from '@jest/globals'
import { testDrawn } from '../support/drawn.ts'
import { isLong } from '../support/long.ts'
import type { Accepted } from '../support/client.ts'
import { closeConsoles } from '../support/console.ts'
import { eventually } from '../support/eventually.ts'
import { counter, countedBy, countsOn, guests, inSequence } from '../support/microvms.ts'
import { platform, type RoleName, startAll } from '../support/platform.ts'
import { randomOf } from '../support/random.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Accepted operations take effect exactly once, even if a process is killed (-9). A restart of the platform never
// restarts a guest.

// Guests that one test leaves running would slow down the next.
afterEach(async () => {
  await startAll()
  await removeTenants()
})
afterAll(closeConsoles)

const roles: RoleName[] = ['worker', 'host', 'api', 'temporal', 'mongodb']

const taken = ({ operation }: Accepted) => eventually(async () => (await operation.now()).state === 'running')
const started = (id: string) => eventually(async () => (await guests(id)).length > 0)
const ended = (id: string) => eventually(async () => (await guests(id)).length === 0)

/** One guest runs, as recorded. */
async function expectOne(tenant: TestTenant, id: string): Promise<void> {
  expect(await tenant.microvms.get(id)).toMatchObject({
    status: 'running',
    desired_state: 'running',
    status_reason: null,
    operation_id: null,
  })
  expect(await guests(id)).toHaveLength(1)
}

describe.each(sampled(roles, 1))('when %s is killed,', (role) => {
  const killed = async (accepted: Accepted, state = 'succeeded'): Promise<void> => {
    await platform.kill(role)
    await platform.start(role)
    expect(await accepted.operation.end()).toMatchObject({ state })
  }

  test('a microVM under creation runs once, and a running one continues undisturbed', async () => {
    const tenant = await makeTenant()
    const accepted = await tenant.microvms.create(counter)
    await started(accepted.id)
    await killed(accepted)
    await expectOne(tenant, accepted.id)
    const pids = await guests(accepted.id)
    await countsOn(tenant, accepted.id)
    await platform.kill(role)
    await platform.start(role)
    const numbers = await countsOn(tenant, accepted.id)
    expect(numbers).toEqual(inSequence(numbers))
    expect(await guests(accepted.id)).toEqual(pids)
  })

  test('suspend, resume and fork complete, and no number is lost', async () => {
    const tenant = await makeTenant()
    const { id } = await tenant.microvms.make(counter)
    await countsOn(tenant, id)
    const suspension = await tenant.microvms.suspend(id)
    await taken(suspension)
    await killed(suspension)
    expect(await tenant.microvms.get(id)).toMatchObject({ status: 'suspended', operation_id: null })
    await ended(id)

    const fork = await tenant.microvms.fork(id)
    await started(fork.id)
    await killed(fork)
    await expectOne(tenant, fork.id)

    const resumption = await tenant.microvms.resume(id)
    await started(id)
    await killed(resumption)
    await expectOne(tenant, id)
    const numbers = await countsOn(tenant, id)
    expect(numbers).toEqual(inSequence(numbers))
  })
})

testDrawn(
  'a guest whose process is killed during its suspension ends running or suspended, as recorded',
  async () => {
    const tenant = await makeTenant()
    const { id } = await tenant.microvms.make()
    const [pid = 0] = await guests(id)
    const { operation } = await tenant.microvms.suspend(id)
    await eventually(async () => (await operation.now()).state !== 'pending')
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // The process had already ended.
    }
    await operation.end()
    await eventually(async () => {
      const { status, operation_id } = await tenant.microvms.get(id)
      const running = (await guests(id)).length
      return (
        operation_id === null &&
        ((status === 'suspended' && running === 0) || (status === 'running' && running === 1))
      )
    })
  },
)

testDrawn('a microVM that is deleted during its creation or suspension leaves nothing', async () => {
  const tenant = await makeTenant()
  const first = await tenant.microvms.create()
  await started(first.id)
  await (await tenant.microvms.delete(first.id)).operation.success()
  const { id } = await tenant.microvms.make()
  await tenant.microvms.suspend(id)
  await (await tenant.microvms.delete(id)).operation.success()
  expect(await guests(first.id)).toEqual([])
  expect(await guests(id)).toEqual([])
  expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
})

describe('with kills at random moments,', () => {
  const seeds = Array.from({ length: 6 }, (_, seed) => seed)
  const cycles = isLong ? 3 : 1
  test.each(sampled(seeds, 1))(
    'seed %i: a microVM is suspended and resumed, with a kill in each, and no number is lost',
    async (seed) => {
      const random = randomOf(seed)
      const tenant = await makeTenant()
      const { id } = await tenant.microvms.make(counter)
      for (let cycle = 0; cycle < cycles; cycle++) {
        await countsOn(tenant, id)
        for (const begin of [() => tenant.microvms.suspend(id), () => tenant.microvms.resume(id)]) {
          const { operation } = await begin()
          await new Promise((resolve) => setTimeout(resolve, random() * 1_500))
          const role = roles[Math.floor(random() * roles.length)] ?? 'host'
          await platform.kill(role)
          await platform.start(role)
          await operation.success()
        }
      }
      const numbers = await countedBy(tenant, id)
      expect(numbers).toEqual(inSequence(numbers))
    },
  )
})
