import { afterAll, expect, test } from '@jest/globals'
import { specOf } from '../support/ai/specs.ts'
import { asRoot } from '../support/as-root.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { makeTenant, removeTenants } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Runs whose nodes search the tenant's documents.

afterAll(removeTenants)

asRoot('a run that searches', () => {
  test('gets the passages that answer its question, with their documents', async () => {
    const tenant = await makeTenant()
    const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
    await (await ragStoreOf(tenant.owner).enable(subnet.id)).operation.success()
    await (await collectionsOf(tenant.owner).create({ name: 'manuals' })).operation.success()
    const documents = documentsOf(tenant.owner, 'manuals')
    const pump = await documents.make('pump.md', '# Pump\n\nThe pump starts with the green button.')
    await documents.make('lamp.md', '# Lamp\n\nThe lamp has a yellow switch.')

    const workflows = aiWorkflowsOf(tenant.owner)
    const find = {
      kind: 'retrieve',
      collection: 'manuals',
      query: 'How does the ${input.text} start?',
      top_k: 1,
    }
    const { id } = await workflows.published(
      specOf(
        { find, none: { ...find, query: '  ', on_error: { value: { passages: [] } } } },
        {
          models: {},
          output: { found: '${nodes.find.output.passages}', none: '${nodes.none.output.passages}' },
        },
      ),
    )
    await (await workflows.deploy(id)).operation.success()
    const run = await workflows.run(id, { text: 'pump' }, '?wait=60')
    expect(run).toMatchObject({
      status: 'succeeded',
      output: {
        found: [
          {
            text: expect.stringContaining('green button'),
            document_id: pump.id,
            document: 'pump.md',
            score: expect.any(Number),
          },
        ],
        none: [],
      },
    })
    expect(run.nodes.find(({ node }) => node === 'none')).toMatchObject({
      status: 'failed',
      error: { code: 'invalid_input' },
      attempt: 1,
    })
    await (await workflows.undeploy(id)).operation.success()
  })
})
