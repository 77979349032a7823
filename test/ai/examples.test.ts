import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { asRoot } from '../support/as-root.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { modelProviderPorts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// The examples of docs/ai-workflow-examples.md, as a user would run them.

const page = readFileSync(new URL('../../docs/ai-workflow-examples.md', import.meta.url), 'utf8')
type Example = [title: string, spec: object, given: { input: unknown }, made: { output: unknown }]
const examples = page
  .split('\n## ')
  .slice(1)
  .map((section) => [
    section.slice(0, section.indexOf('\n')),
    ...[...section.matchAll(/```json\n(.*?)```/gs)].map(([, json]) => JSON.parse(json ?? '') as object),
  ]) as Example[]

/** What the model says to these words. */
const answers: [asked: RegExp, says: object][] = [
  [/charged twice/, { topic: 'billing', urgent: false }],
  [/green button/, { text: 'With the green button.', used: [0] }],
  [/Should we act/, { reasons: 'Two of three say that it breaks.', act: true }],
  [/It came in time/, { mood: 'good', about: 'delivery' }],
  [/broke|leaks/, { mood: 'bad', about: 'quality' }],
]
const answerTo = (asked: string): string => {
  const found = answers.find(([words]) => words.test(asked))
  if (!found) throw new Error(`nothing is said to ${asked}`)
  return JSON.stringify(found[1])
}

let provider: ModelProvider
let tenant: TestTenant
beforeAll(async () => {
  provider = await startModelProvider(
    (_, __, { messages }) => (messages ? { says: answerTo(JSON.stringify(messages)) } : {}),
    modelProviderPorts.examples,
  )
  tenant = await makeTenant()
  await insertConnector(tenant.id, 'openai', provider.base_url, { is_default: true })
})
afterAll(async () => {
  await removeTenants()
  await provider.close()
})

test('the page has three', () => {
  expect(examples.map((example) => example.length)).toEqual([4, 4, 4])
})

asRoot('an example', () => {
  beforeAll(async () => {
    const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
    await (await ragStoreOf(tenant.owner).enable(subnet.id)).operation.success()
    await (await collectionsOf(tenant.owner).create({ name: 'manuals' })).operation.success()
    const documents = documentsOf(tenant.owner, 'manuals')
    await documents.make('pump.md', 'The pump starts with the green button.')
    await documents.make('lamp.md', 'The lamp has a yellow switch.')
  })

  test.each(examples)('%s', async (_, spec, { input }, { output }) => {
    const workflows = aiWorkflowsOf(tenant.owner)
    const { id } = await workflows.published(spec)
    await (await workflows.deploy(id)).operation.success()
    const { id: run } = await workflows.run(id, input)
    expect(await workflows.endOfRun(id, run)).toMatchObject({ status: 'succeeded', error: null, output })
    await (await workflows.undeploy(id)).operation.success()
  })
})
