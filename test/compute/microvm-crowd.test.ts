import { afterAll, beforeAll, expect } from '@jest/globals'
import type { Accepted } from '../support/client.ts'
import { closeConsoles } from '../support/console.ts'
import { eventually } from '../support/eventually.ts'
import { testLong } from '../support/long-tests.ts'
import { machineTraces } from '../support/machine-traces.ts'
import { bootId, countsOn, guests, inSequence } from '../support/microvms.ts'
import { platform } from '../support/platform.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'

// Many microVMs on one machine at once, sharing its CPUs. For the times see script/bench and docs/machines.md.

const count = 30
const within = 900_000

/** Counts slowly: without KVM each number takes 50 ms of CPU. */
const slowCounter = { command: ['sh', '-c', 'n=0; while :; do n=$((n+1)); echo $n; sleep 3; done'] }

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
afterAll(closeConsoles)

/** Starts an operation for each microVM at the same time, and waits for the last. */
async function all(what: string, begin: (index: number) => Promise<Accepted>): Promise<string[]> {
  const begun = Date.now()
  const accepted = await Promise.all(Array.from({ length: count }, (_, index) => begin(index)))
  for (const { operation } of accepted) await operation.success(within)
  console.info(`${count} microVMs ${what}: ${((Date.now() - begun) / 1000).toFixed(1)} s`)
  return accepted.map(({ id }) => id)
}

/** Asks one after the other: the microVMs are busy enough. */
async function each<T>(ids: string[], ask: (id: string) => Promise<T>): Promise<T[]> {
  const answers: T[] = []
  for (const id of ids) answers.push(await ask(id))
  return answers
}
const running = async (ids: string[]): Promise<number> => (await each(ids, guests)).flat().length

/** Each has counted on without skipping a number. */
async function expectAllCounting(ids: string[]): Promise<void> {
  for (const numbers of await each(ids, (id) => countsOn(tenant, id, 1)))
    expect(numbers).toEqual(inSequence(numbers))
}

testLong(
  `${count} microVMs run together, survive a kill of their host worker, and are all suspended and resumed`,
  async () => {
    const ids = await all('created', () => tenant.microvms.create(slowCounter))
    expect(await running(ids)).toBe(count)
    expect(await tenant.holds()).toMatchObject({ cpu_milli: count * 1000, memory_mib: count * 64 })
    const [boots, pids] = [await each(ids, (id) => bootId(tenant, id)), await each(ids, guests)]

    await platform.kill('host')
    await platform.start('host')
    await expectAllCounting(ids)
    expect(await each(ids, guests)).toEqual(pids)

    await all('suspended', (index) => tenant.microvms.suspend(ids[index] ?? ''))
    expect(await running(ids)).toBe(0)
    expect(await tenant.holds()).toMatchObject(holdsNothing)
    await all('resumed', (index) => tenant.microvms.resume(ids[index] ?? ''))
    expect(await running(ids)).toBe(count)
    expect(await each(ids, (id) => bootId(tenant, id))).toEqual(boots)
    await expectAllCounting(ids)

    await all('deleted', (index) => tenant.microvms.delete(ids[index] ?? ''))
    for (const id of ids) await eventually(async () => (await machineTraces(id)).length === 0)
  },
  2 * within,
)
