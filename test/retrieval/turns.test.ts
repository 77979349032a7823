import { afterAll, expect, test } from '@jest/globals'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { sectioned } from '../support/rag/texts.ts'
import { makeTenant, removeTenants } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// One tenant's documents wait behind few of another’s.

afterAll(removeTenants)

const many = 24

/** Another text for each number: nothing is embedded for chunks whose vectors the store has. */
const textOf = (number: number, sections: number): string =>
  sectioned(sections).replaceAll('this part', `part ${number}`)

async function emptyCollection() {
  const tenant = await makeTenant()
  const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  await (await ragStoreOf(tenant.owner).enable(subnet.id)).operation.success()
  const { operation } = await collectionsOf(tenant.owner).create({ name: 'manuals' })
  await operation.success()
  return documentsOf(tenant.owner, 'manuals')
}

asRoot('the documents of two tenants', () => {
  test('take turns, however many one of them has uploaded', async () => {
    const [busy, quiet] = await Promise.all([emptyCollection(), emptyCollection()])
    const uploads = await Promise.all(
      Array.from({ length: many }, (_, number) => busy.upload(`${number}.md`, textOf(number, 60))),
    )
    const { status } = await quiet.make('only.md', textOf(many, 2))
    expect(status).toBe('ready')
    const ready = (await busy.list('?limit=100')).filter((document) => document.status === 'ready')
    expect(ready.length).toBeLessThan(many / 2)
    await Promise.all(uploads.map(({ operation }) => operation.success()))
  })
})
