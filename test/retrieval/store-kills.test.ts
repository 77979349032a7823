import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { Disk } from '../../models/storage/disks.ts'
import { asRoot } from '../support/as-root.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { eventually } from '../support/eventually.ts'
import { platform, startAll } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { holdsNothing, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// What remains of a store if a process is killed while it is made, rotated or deleted: one of each, or nothing.

let tenant: TestTenant
let subnet: { id: string }
beforeAll(async () => {
  tenant = await makeTenant()
  subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
})
afterEach(startAll)
afterAll(removeTenants)

const parts = async (): Promise<[number, number]> => {
  const its = { tenant_id: tenant.id, managed_by: { $ne: null } }
  return [await instanceKinds.container.model.countDocuments(its), await Disk.countDocuments(its)]
}

const cases = (['worker', 'host', 'temporal', 'mongodb', 'api'] as const).flatMap((role) =>
  ['making its disk', 'starting', 'waiting'].map((step) => ({ role, step })),
)

asRoot('a store', () => {
  test.each(sampled(cases, 2))(
    'is made once if $role is killed at the step "$step"',
    async ({ role, step }) => {
      const store = ragStoreOf(tenant.owner)
      const { operation } = await store.enable(subnet.id)
      await eventually(async () => {
        const { step: present, state } = await operation.now()
        return present?.startsWith(step) || !['pending', 'running'].includes(state)
      })
      await platform.restartKilled(role)
      await operation.success()
      await eventually(async () => (await store.now()).ready)
      expect(await parts()).toEqual([1, 1])

      const { operation: rotation } = await store.rotate()
      await eventually(async () => {
        const { step: present, state } = await rotation.now()
        return present?.startsWith('restarting') || !['pending', 'running'].includes(state)
      })
      await platform.restartKilled(role)
      await rotation.success()
      await eventually(async () => (await store.now()).ready)

      const { operation: deletion } = await store.disable()
      await platform.restartKilled(role)
      await deletion.success()
      expect(await parts()).toEqual([0, 0])
      expect(await tenant.holds()).toEqual(holdsNothing)
    },
  )

  test('whose creation is cancelled leaves nothing but its record, and is made at the next call', async () => {
    const store = ragStoreOf(tenant.owner)
    const { operation } = await store.enable(subnet.id)
    await eventually(async () => (await parts())[1] === 1)
    await operation.cancel()
    const { state } = await operation.end()
    if (state === 'cancelled') {
      expect(await parts()).toEqual([0, 0])
      expect(await store.now()).toMatchObject({ enabled: true, ready: false, status: 'error' })
      await (await store.enable(subnet.id)).operation.success()
    }
    await eventually(async () => (await store.now()).ready)
    await (await store.disable()).operation.success()
    expect(await parts()).toEqual([0, 0])
  })
})
