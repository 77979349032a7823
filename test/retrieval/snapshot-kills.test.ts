import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf } from '../support/clients/rag.ts'
import { eventually } from '../support/eventually.ts'
import { platform, startAll } from '../support/platform.ts'
import { restoresOf } from '../support/rag/restores.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// A restore of a store is cancelled, or a process is killed meanwhile: the store has what the records say.

let tenant: TestTenant
let on: ReturnType<typeof restoresOf>
beforeAll(async () => {
  tenant = await makeTenant()
  on = restoresOf(tenant)
  const { id } = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  await (await on.store.enable(id)).operation.success()
  await (await collectionsOf(tenant.owner).create({ name: 'docs' })).operation.success()
})
afterEach(startAll)
afterAll(removeTenants)

asRoot('a store that is restored from a snapshot', () => {
  test.each(sampled(['copying', 'starting', 'waiting', 'deleting'], 2))(
    'has lost nothing if that is cancelled at the step "%s"',
    async (step) => {
      const { id: same } = await on.documents().make('same.txt', 'Masts are the same.')
      await on.remade('remade', 'former')
      const { id } = await on.documents().make('goes.txt', 'Yawls go.')
      const name = await on.snapshot()
      await on.remade('remade', step)
      const { operation } = await on.store.restore(name)
      await eventually(async () => {
        const { step: present, state } = await operation.now()
        return present?.startsWith(step) || !['pending', 'running'].includes(state)
      })
      // It must not be carried out on a disk that goes.
      const { operation: deletion } = await on.documents().delete(id)
      await operation.cancel()
      const { state } = await operation.end()
      await deletion.success()
      await on.settled()
      expect(await on.found('masts')).toEqual(['same.txt'])
      expect(await on.found(step, 'remade')).toEqual(['word.txt'])
      expect(await on.found('former', 'remade')).toEqual([])
      const door = await storeAtWork(tenant.id)
      expect((await door.search('docs', { mode: 'text', k: 5, text: 'yawls' })).hits).toEqual([])
      if (state === 'cancelled') expect(await on.store.snapshots()).toContain(name)
      await on.expectOne()
      await (await on.documents().delete(same)).operation.success()
    },
  )

  const cases = (['worker', 'host', 'temporal', 'mongodb', 'api'] as const).flatMap((what) =>
    ['copying', 'starting', 'waiting', 'deleting', 'indexing', 'removing'].map((step) => ({ what, step })),
  )
  test.each(sampled(cases, 2))(
    'is restored if $what is killed at the step "$step"',
    async ({ what, step }) => {
      const { id } = await on.documents().make('gone.txt', 'Oars are gone.')
      await on.remade('remade', 'former')
      const name = await on.snapshot()
      await (await on.documents().delete(id)).operation.success()
      const { id: later } = await on.documents().make('later.txt', 'Sails are new.')
      await on.remade('remade', what)
      const { operation } = await on.store.restore(name)
      await eventually(async () => {
        const { step: present, state } = await operation.now()
        return present?.startsWith(step) || !['pending', 'running'].includes(state)
      })
      await platform.restartKilled(what)
      await operation.success()
      await on.settled()
      expect(await on.found('oars')).toEqual([])
      expect(await on.found('sails')).toEqual(['later.txt'])
      expect(await on.found(what, 'remade')).toEqual(['word.txt'])
      expect(await on.found('former', 'remade')).toEqual([])
      await on.expectOne()
      await (await on.documents().delete(later)).operation.success()
    },
  )
})
