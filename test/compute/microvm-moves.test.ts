import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { Accepted } from '../support/client.ts'
import { closeConsoles } from '../support/console.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open, whileFull } from '../support/hosts.ts'
import { archived, numbers } from '../support/log-archive.ts'
import { testLong } from '../support/long-tests.ts'
import { machineFiles, machineTraces } from '../support/machine-traces.ts'
import { counter, countsOn, guests, inSequence, outputOf } from '../support/microvms.ts'
import { platform } from '../support/platform.ts'
import { randomOf } from '../support/random.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// A microVM moves to another host with its root disk, its memory and its disks.

let tenant: TestTenant

async function countingHere(): Promise<string> {
  await open([first])
  const { id } = await tenant.microvms.make(counter)
  await countsOn(tenant, id)
  return id
}

describeHosts('a move', () => {
  beforeAll(async () => {
    tenant = await makeTenant()
  })
  afterAll(async () => {
    closeConsoles()
    await removeTenants()
    await closeFurther()
  })

  test('moves a running microVM, which loses no number, then a suspended one, a stopped one, and back', async () => {
    await open([first])
    const { id: disk } = await tenant.disks.make()
    const disks = [{ disk_id: disk, mount_path: '/data' }]
    const { id } = await tenant.microvms.make({ ...counter, disks })
    await outputOf(tenant, id, 'echo kept >/data/file; sync')
    await countsOn(tenant, id)
    await open([second])
    await (await tenant.microvms.reschedule(id)).operation.success()
    expect(await tenant.microvms.get(id)).toMatchObject({ status: 'running', host_id: second.id })
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'attached', host_id: second.id })
    const counted = await countsOn(tenant, id)
    // It may have printed the first of these on its old host.
    expect(counted).toEqual(inSequence(counted).map((number) => number + (counted[0] ?? 0) - 1))
    expect(await outputOf(tenant, id, 'cat /data/file')).toBe('kept')
    expect(await guests(id)).toHaveLength(1)

    await (await tenant.microvms.suspend(id)).operation.success()
    await open([first])
    await (await tenant.microvms.reschedule(id)).operation.success()
    expect(await tenant.microvms.get(id)).toMatchObject({ status: 'suspended', host_id: first.id })
    await (await tenant.microvms.resume(id)).operation.success()
    await countsOn(tenant, id)

    await (await tenant.microvms.stop(id)).operation.success()
    await open([second])
    await (await tenant.microvms.reschedule(id)).operation.success()
    await (await tenant.microvms.start(id)).operation.success()
    expect(Number(await outputOf(tenant, id, 'cat /count'))).toBeGreaterThan(6)
    await eventually(async () => (await guests(id)).length === 1)

    // The output of the old host has been archived, and no file is left there.
    await eventually(() => [...machineFiles(id).keys()].join() === '2')
    const all = numbers(await archived(tenant.owner, id, 'microvms'))
    expect(all.slice(0, 6)).toEqual([1, 2, 3, 4, 5, 6])
    expect(all).toEqual([...new Set(all)].toSorted((a, b) => a - b))
  })

  testDrawn('resumes a suspended microVM on a host with room if its own host is full', async () => {
    const own = await makeTenant()
    await open([first])
    const { id: disk } = await own.disks.make()
    const { id } = await own.microvms.make({ ...counter, disks: [{ disk_id: disk, mount_path: '/data' }] })
    await countsOn(own, id)
    await (await own.microvms.suspend(id)).operation.success()
    const room = await own.holds()
    // A host worker that has just started does not know its engine yet.
    await platform.kill('host')
    await platform.start('host')
    await whileFull(first, async () => {
      const refused = await own.owner.ask('POST', `/api/v1/microvms/${id}/resume`)
      const detail = expect.stringMatching(/^Its own host has too little memory\. No other host /)
      expect(refused).toMatchObject({ status: 409, body: { code: 'no_capacity', detail } })
      expect(await own.microvms.get(id)).toMatchObject({ status: 'suspended', desired_state: 'suspended' })
      expect(await own.holds()).toEqual(room)

      await open([second])
      await (await own.microvms.resume(id)).operation.success()
    })
    expect(await own.microvms.get(id)).toMatchObject({ status: 'running', host_id: second.id })
    expect(await own.disks.get(disk)).toMatchObject({ status: 'attached', host_id: second.id })
    expect(await own.holds()).toMatchObject({ cpu_milli: 1000, memory_mib: 64 })
    const counted = await countsOn(own, id)
    expect(counted).toEqual(inSequence(counted).map((number) => number + (counted[0] ?? 0) - 1))
    await eventually(() => [...machineFiles(id).keys()].join() === '2')
    expect(await guests(id)).toHaveLength(1)
  })

  const roles = ['worker', 'api', 'temporal', 'mongodb', 'host', 'host-2'] as const
  const kills = roles.flatMap((role) => [0, 1, 2].map((seed) => ({ role, seed })))

  /** Kills a role while the microVM moves to the second host; the move must still complete there. */
  async function goesOnThere(
    id: string,
    { operation }: Accepted,
    { role, seed }: (typeof kills)[number],
  ): Promise<void> {
    await delay(randomOf(seed)() * 6_000)
    await platform.kill(role)
    await platform.start(role)
    await operation.success()
    expect(await tenant.microvms.get(id)).toMatchObject({ status: 'running', host_id: second.id })
    const counted = await countsOn(tenant, id)
    expect(counted).toEqual(inSequence(counted).map((number) => number + (counted[0] ?? 0) - 1))
    await eventually(() => [...machineFiles(id).keys()].join() === '2')
    expect(await guests(id)).toHaveLength(1)
    await (await tenant.microvms.delete(id)).operation.success()
    await eventually(async () => (await machineTraces(id)).length === 0)
  }

  testLong.each(kills)(
    'completes although $role is killed, seed $seed, and loses no number',
    async (kill) => {
      const id = await countingHere()
      await open([second])
      await goesOnThere(id, await tenant.microvms.reschedule(id), kill)
    },
  )

  // The long form kills each role.
  test.each(sampled(kills, 1))(
    'resumes a microVM elsewhere while $role is killed, seed $seed, and loses no number',
    async (kill) => {
      const id = await countingHere()
      await (await tenant.microvms.suspend(id)).operation.success()
      await open([second])
      await whileFull(first, async () => goesOnThere(id, await tenant.microvms.resume(id), kill))
    },
  )
})
