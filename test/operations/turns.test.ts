import { expect, test } from '@jest/globals'
import { mapAtOnce } from '../../lib/queue.ts'
import { Operation } from '../../models/operations.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { isLong } from '../support/long.ts'
import { makeTenant, removeTenants } from '../support/tenants.ts'

// One host, and a tenant with much to do there.

const creates = isLong ? 2000 : 60
// Its containers end at once: one engine starts a container in three seconds when it runs more than 1,000.
const brief = { command: ['true'], restart_policy: 'never' }
// A client does not ask for 2,000 at once: on a busy machine the last of them would wait minutes for its answer.
const atOnce = 60
const within = isLong ? 2_400_000 : 600_000

test(
  'a tenant’s create does not wait for all those that another tenant began before it',
  async () => {
    const [busy, other] = [await makeTenant({ max_cpu_cores: 1000, max_ram_gib: 1000 }), await makeTenant()]
    await mapAtOnce(
      Array.from({ length: creates }, (_, index) => index),
      atOnce,
      () => busy.containers.create(brief),
    )
    const ended = () => Operation.countDocuments({ tenant_id: busy.id, open: { $ne: true } })
    const before = await ended()
    const { operation } = await other.containers.create()
    await operation.success()
    const ahead = (await ended()) - before
    console.info(`${ahead} of ${creates - before} creates were ahead`)
    // Some end while it takes its own steps; without turns, all would be ahead.
    expect(ahead).toBeLessThan((2 * (creates - before)) / 3)
    // One engine takes half an hour for 2,000, so the long form cancels those that wait.
    const left = { tenant_id: busy.id, open: true as const }
    const waiting = isLong ? await Operation.find(left, { _id: 1 }).lean() : []
    await mapAtOnce(waiting, atOnce, ({ _id }) => busy.owner.ask('POST', `/api/v1/operations/${_id}/cancel`))
    // By one query, not by a request for each: the machine has no time left for 2,000 callers.
    await eventually(async () => (await Operation.countDocuments(left)) === 0)
    const states = isLong ? ['succeeded' as const, 'cancelled' as const] : ['succeeded' as const]
    const others = { tenant_id: busy.id, state: { $nin: states } }
    expect(await Operation.countDocuments(others)).toBe(0)
    // Here, because the hook that does so after each file has ten minutes.
    await removeTenants()
  },
  within,
)
