import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { makePgvectorImage } from '../support/rag/pgvector-image.ts'
import { holdsNothing, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// A store with the engine for many documents, through the API: nothing else knows which one it is.

let tenant: TestTenant
let subnet: { id: string }
beforeAll(async () => {
  await makePgvectorImage()
  tenant = await makeTenant()
  subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
})
afterAll(removeTenants)

const store = () => ragStoreOf(tenant.owner)
const documents = () => documentsOf(tenant.owner, 'manuals')
const larger = { engine: 'pgvector', memory_mib: 1024, size_gib: 2 }

asRoot('a store with pgvector', () => {
  test('needs more memory than one with SQLite', async () => {
    expect(await store().ask('enable', { subnet_id: subnet.id, ...larger, memory_mib: 512 })).toMatchObject({
      status: 422,
      body: { code: 'invalid_input', errors: [{ pointer: '/memory_mib' }] },
    })
  })

  test('is made as any other, and keeps its engine', async () => {
    await (await store().enable(subnet.id, larger)).operation.success()
    expect(await store().now()).toMatchObject({ ready: true, engine: 'pgvector' })
    expect(await store().ask('enable', { subnet_id: subnet.id })).toMatchObject({ status: 200 })
    expect(await store().ask('enable', { subnet_id: subnet.id, engine: 'sqlite' })).toMatchObject({
      status: 409,
      body: { code: 'store_engine', engine: 'pgvector' },
    })
  })

  test('finds documents by each mode, and none that is deleted', async () => {
    await (
      await collectionsOf(tenant.owner).create({ name: 'manuals', metadata_schema: { year: 'number' } })
    ).operation.success()
    const content = '# Pumps\n\nOpen the valve before you start the pump.\n'
    const uploaded = await documents().upload('pumps.md', content, { metadata: { year: 2024 } })
    await uploaded.operation.success()
    for (const mode of ['vector', 'text', 'hybrid']) {
      const hits = await documents().search('starting pumps', { mode, filter: { year: 2024 } })
      expect(hits).toMatchObject([{ document: { name: 'pumps.md' } }])
    }
    await (await documents().delete(uploaded.id)).operation.success()
    expect(await documents().search('starting pumps')).toEqual([])
  })

  test('comes back by itself when its process is killed, with what it has', async () => {
    const its = { tenant_id: tenant.id, managed_by: { $ne: null } }
    const container = await instanceKinds.container.model.findOne(its).lean()
    await engine.kill(container?._id ?? '')
    await eventually(async () => !(await store().now()).ready)
    await eventually(async () => (await store().now()).ready)
    expect(await collectionsOf(tenant.owner).get('manuals')).toMatchObject({ status: 'ready' })
  })

  test('leaves nothing when it is disabled', async () => {
    await (await store().disable()).operation.success()
    expect(await tenant.holds()).toEqual(holdsNothing)
  })
})
