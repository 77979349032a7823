import { afterAll, expect, test } from '@jest/globals'
import { mapAtOnce } from '../../lib/queue.ts'
import { Operation } from '../../models/operations.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { isLong } from '../support/long.ts'
import { makeTenant, removeTenants } from '../support/tenants.ts'

// One host, and a tenant with much to do there.

const creates = isLong ? 2000 : 60
const within = isLong ? 2_400_000 : 600_000

afterAll(removeTenants)

test(
  'a tenant’s create does not wait for all those that another tenant began before it',
  async () => {
    const [busy, other] = [await makeTenant({ max_cpu_cores: 1000, max_ram_gib: 1000 }), await makeTenant()]
    // A client does not ask for 2,000 at once: on a busy machine the last of them would wait minutes for its answer.
    await mapAtOnce(
      Array.from({ length: creates }, (_, index) => index),
      60,
      () => busy.containers.create(),
    )
    const ended = () => Operation.countDocuments({ tenant_id: busy.id, open: { $ne: true } })
    const before = await ended()
    const { operation } = await other.containers.create()
    await operation.success()
    const ahead = (await ended()) - before
    console.info(`${ahead} of ${creates - before} creates were ahead`)
    // Some end while it takes its own steps; without turns, all would be ahead.
    expect(ahead).toBeLessThan((2 * (creates - before)) / 3)
    // By one query, not by a request for each: the machine has no time left for 2,000 callers.
    const left = { tenant_id: busy.id, open: true as const }
    await eventually(async () => (await Operation.countDocuments(left)) === 0, { withinMs: within })
    const failed = { tenant_id: busy.id, state: { $ne: 'succeeded' as const } }
    expect(await Operation.countDocuments(failed)).toBe(0)
  },
  within,
)
