import { afterAll, expect, test } from '@jest/globals'
import { Operation } from '../../models/operations.ts'
import '../support/exclusive.ts'
import { isLong } from '../support/long.ts'
import { makeTenant, removeTenants } from '../support/tenants.ts'

// One host, and a tenant with much to do there.

const creates = isLong ? 2000 : 60

afterAll(removeTenants)

test('a tenant’s create does not wait for all those that another tenant began before it', async () => {
  const [busy, other] = [await makeTenant({ max_cpu_cores: 1000, max_ram_gib: 1000 }), await makeTenant()]
  const all = await Promise.all(Array.from({ length: creates }, () => busy.containers.create()))
  const ended = () => Operation.countDocuments({ tenant_id: busy.id, open: { $ne: true } })
  const before = await ended()
  const { operation } = await other.containers.create()
  await operation.success()
  const ahead = (await ended()) - before
  console.info(`${ahead} of ${creates - before} creates were ahead`)
  // Some end while it takes its own steps; without turns, all would be ahead.
  expect(ahead).toBeLessThan((2 * (creates - before)) / 3)
  await Promise.all(all.map((one) => one.operation.success()))
})
