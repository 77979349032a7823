import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { machinesRun } from '../../script/lib/settings.ts'
import type { Client, Operation } from '../support/client.ts'
import { closeConsoles } from '../support/console.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { expectNoNetworks } from '../support/host-networks.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { testLong } from '../support/long-tests.ts'
import { machineFiles, machineTraces } from '../support/machine-traces.ts'
import {
  bootId,
  counter,
  countedBy,
  countsOn,
  guests,
  inSequence,
  killProcesses,
  outputOf,
} from '../support/microvms.ts'
import { platform } from '../support/platform.ts'
import { layout } from '../support/stack.ts'
import { makeOperator, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// A host with microVMs is lost: only its worker, cut off from the platform while the microVMs keep running, or all of
// it, as in a power loss. The microVMs run nowhere else meanwhile, and are complete when the host is back.

// The index of the second host, which is a network namespace.
const there = 2

let tenant: TestTenant
let operator: Client
let subnet: string

const statusOf = async (id: string): Promise<string> => (await tenant.microvms.get(id)).status
const comesTo = (id: string, status: string) => eventually(async () => (await statusOf(id)) === status)
const refused = async ({ operation }: { operation: Operation }): Promise<void> =>
  expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'host_unreachable' } })

async function makeThere(count: number): Promise<string[]> {
  await open([second])
  const nics = [{ subnet_id: subnet }]
  const made = await Promise.all(
    Array.from({ length: count }, () => tenant.microvms.create({ ...counter, nics })),
  )
  for (const { operation } of made) await operation.success()
  return made.map(({ id }) => id)
}

const suspended = async (id: string): Promise<void> => {
  await countsOn(tenant, id)
  await (await tenant.microvms.suspend(id)).operation.success()
}

/** The microVM has continued on its host, and runs nowhere else. */
async function expectUnbroken(id: string): Promise<void> {
  const numbers = await countsOn(tenant, id)
  expect(numbers).toEqual(inSequence(numbers))
  expect([...machineFiles(id).keys()]).toEqual([there])
  expect(await guests(id)).toHaveLength(1)
}

describeHosts('a lost host', () => {
  beforeAll(async () => {
    operator = await makeOperator()
    tenant = await makeTenant()
    subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  })
  afterAll(async () => {
    closeConsoles()
    await removeTenants()
    await eventually(() => expectNoNetworks(second, tenant.id))
    await closeFurther()
  })

  test('has its running and suspended microVMs unchanged when it is back, and removes one deleted meanwhile', async () => {
    const [runs = '', rests = '', goes = ''] = await makeThere(3)
    await suspended(rests)
    await countsOn(tenant, runs)
    const boot = await bootId(tenant, runs)
    const pids = await guests(runs)

    await platform.kill(second.roles.host)
    await comesTo(runs, 'unreachable')
    expect(await statusOf(rests)).toBe('suspended')
    await refused(await tenant.microvms.resume(rests))
    await open([first])
    await refused(await tenant.microvms.reschedule(runs))
    const path = `/api/v1/platform/hosts/${second.id}/evacuate`
    const evacuation = await (await operator.begin('POST', path)).operation.end()
    expect(evacuation).toMatchObject({ state: 'failed', error: { code: 'not_evacuated' } })
    await (await tenant.microvms.delete(goes)).operation.success()
    expect(await statusOf(runs)).toBe('unreachable')
    expect(await statusOf(rests)).toBe('suspended')
    expect(await guests(runs)).toEqual(pids)
    expect([...machineFiles(runs).keys()]).toEqual([there])

    await platform.start(second.roles.host)
    await comesTo(runs, 'running')
    expect(await guests(runs)).toEqual(pids)
    expect(await bootId(tenant, runs)).toBe(boot)
    await expectUnbroken(runs)
    await (await tenant.microvms.resume(rests)).operation.success()
    await expectUnbroken(rests)
    await eventually(async () => (await machineTraces(goes)).length === 0)
  })

  testLong.each(['suspend', 'resume', 'create'] as const)(
    'completes a %s that was under way, exactly once, when it is back',
    async (verb) => {
      const [id = ''] = verb === 'create' ? [] : await makeThere(1)
      if (verb === 'resume') await suspended(id)
      if (verb === 'suspend') await countsOn(tenant, id)
      await open([second])
      const accepted = await (verb === 'create' ? tenant.microvms.create(counter) : tenant.microvms[verb](id))
      if (verb === 'suspend')
        await eventually(async () => (await accepted.operation.now()).state !== 'pending')
      else await eventually(async () => (await guests(accepted.id)).length > 0)
      await platform.kill(second.roles.host)
      const at = `/api/v1/platform/hosts/${second.id}`
      await eventually(async () => (await operator.get(at))['status'] === 'unreachable')
      expect(await accepted.operation.now()).toMatchObject({ state: 'running' })
      await platform.start(second.roles.host)
      await accepted.operation.success()
      if (verb === 'suspend') await (await tenant.microvms.resume(id)).operation.success()
      await expectUnbroken(accepted.id)
    },
  )

  testLong('boots what ran and can resume what was suspended after a power loss', async () => {
    const [runs = '', rests = '', wakes = ''] = await makeThere(3)
    for (const id of [rests, wakes]) await suspended(id)
    await countsOn(tenant, runs)
    const { operation } = await tenant.microvms.resume(wakes)
    await eventually(async () => (await guests(wakes)).length > 0)
    await platform.kill(second.roles.host)
    for (const id of [runs, wakes]) await killProcesses(id)
    await rm(machinesRun(layout, there), { recursive: true, force: true })
    await comesTo(runs, 'unreachable')

    await platform.start(second.roles.host)
    await operation.end()
    await eventually(async () => (await guests(runs)).length === 1)
    await comesTo(runs, 'running')
    const numbers = await countsOn(tenant, runs)
    expect(new Set(numbers).size).toBe(numbers.length)
    expect(Number(await outputOf(tenant, runs, 'cat /count'))).toBeGreaterThanOrEqual(numbers.at(-1) ?? 0)
    await (await tenant.microvms.resume(rests)).operation.success()
    await expectUnbroken(rests)

    // Its status depends on whether it had written to its disk before; the record must match.
    const status = await eventually(async () => {
      const now = await statusOf(wakes)
      return (await guests(wakes)).length === (now === 'running' ? 1 : 0) && now
    })
    if (status === 'running') await expectUnbroken(wakes)
    else if (status === 'suspended') await (await tenant.microvms.resume(wakes)).operation.success()
    else await (await tenant.microvms.start(wakes)).operation.success()
    const counted = await countedBy(tenant, wakes)
    expect(new Set(counted).size).toBe(counted.length)
  })
})
