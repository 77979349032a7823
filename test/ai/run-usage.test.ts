import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { listVersion } from '../../models/llm/prices.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf, type RunBody } from '../support/clients/ai-workflows.ts'
import { eventually } from '../support/eventually.ts'
import { said } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider, type Treatment } from '../support/model-provider/server.ts'
import { modelProviderPorts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// What runs and their nodes take of models, and where that ends. One workflow: the text of a run's input says which nodes it has.

const failing = Promise.withResolvers<void>()
const never = Promise.withResolvers<void>()
const treatments: Record<string, Treatment> = {
  failing: { waits: { after: 0, for: failing.promise }, says: '{"topic":7}' },
  silent: { waits: { after: 0, for: never.promise } },
}
let provider: ModelProvider
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let id: string

const when = (word: string) => ({ when: `input.text in ['${word}', 'all']` })
const asks = (model: string, more: object = {}) => ({
  kind: 'llm',
  model,
  messages: [{ role: 'user', content: 'What is this? ${input.text}' }],
  retry: { max: 0 },
  ...more,
})
const messages = [{ role: 'user', content: '${item}' }]
const topic = { type: 'object', properties: { topic: { type: 'string' } }, required: ['topic'] }

beforeAll(async () => {
  provider = await startModelProvider((model) => treatments[model] ?? {}, modelProviderPorts.usage)
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  const [known, unknown] = [
    await insertConnector(tenant.id, 'openai', provider.base_url),
    await insertConnector(tenant.id, 'openai_compatible', provider.base_url),
  ]
  const parameters = { max_tokens: 30 }
  const models = {
    priced: { connector: known, model: 'gpt-4o', parameters },
    ...Object.fromEntries(
      ['unpriced', 'failing', 'silent'].map((model) => [model, { connector: unknown, model, parameters }]),
    ),
  }
  const nodes = {
    one: asks('priced', when('priced')),
    each: {
      kind: 'map',
      items: 'input.tags',
      ...when('priced'),
      do: { kind: 'llm', model: 'priced', messages },
    },
    other: asks('unpriced', when('unpriced')),
    say: { kind: 'template', value: 'hello' },
    // A failure, and its siblings.
    bad: asks('failing', { when: "input.text == 'fail'", output_schema: topic }),
    sibling: asks('silent', { when: "input.text == 'fail'" }),
    after: asks('silent', { needs: ['sibling'] }),
    slow: asks('silent', { when: "input.text == 'slow'", timeout_sec: 2, on_error: { goto: 'instead' } }),
    instead: { kind: 'template', value: '${nodes.slow.error.code}' },
    // The first call takes 0.00013625 USD.
    first: asks('priced', { when: "input.text == 'spend'" }),
    second: asks('priced', { needs: ['first'] }),
    third: asks('priced', { needs: ['second'] }),
  }
  const budget = { tokens: 200_000, usd: 0.0002, wall_sec: 3_600 }
  const output = '${has(nodes.instead.output) ? nodes.instead.output : ""}'
  id = (await workflows.published(specOf(nodes, { models, budget, output }))).id
  await (await workflows.deploy(id)).operation.success()
})
afterAll(async () => {
  failing.resolve()
  never.resolve()
  await removeTenants()
  await provider.close()
})

const taken = said.usage.input + said.usage.output
/** At gpt-4o's price: 16 tokens at 2.5, 5 of the cache at 1.25 and 9 at 10 dollars a million. */
const cost = 136_250
const nothing = { tokens: 0, cost_nano_usd: 0, prices_versions: [] }
const calls = (count: number) => ({
  tokens: count * taken,
  cost_nano_usd: count * cost,
  prices_versions: [listVersion],
})
/** The run once the gateway has settled its calls, a moment after their end. */
const settled = (run: string, tokens: number): Promise<RunBody> =>
  eventually(async () => {
    const now = await workflows.getRun(id, run)
    const sum = now.nodes.reduce((all, node) => all + Number(node['tokens']), 0)
    return now['tokens'] === tokens && sum === tokens && now
  })
const nodeOf = ({ nodes }: RunBody, name: string) => nodes.find(({ node }) => node === name)

test('a run and each of its nodes say what their calls took, by which list of prices, and null for an unknown price', async () => {
  const { id: priced } = await workflows.run(id, { text: 'priced', tags: [] }, '?wait=60')
  const run = await settled(priced, taken)
  expect(run).toMatchObject({ status: 'succeeded', ...calls(1) })
  expect(nodeOf(run, 'one')).toMatchObject(calls(1))
  for (const node of ['say', 'each', 'other']) expect(nodeOf(run, node)).toMatchObject(nothing)
  expect(await workflows.runNode(id, priced, 'one')).toMatchObject({ ...calls(1), status: 'succeeded' })

  const { id: unpriced } = await workflows.run(id, { text: 'unpriced' }, '?wait=60')
  const other = await settled(unpriced, taken)
  expect(other).toMatchObject({ tokens: taken, cost_nano_usd: null, prices_versions: [] })
  expect(nodeOf(other, 'other')).toMatchObject({ tokens: taken, cost_nano_usd: null })
  expect(nodeOf(other, 'one')).toMatchObject(nothing)

  // The cost of one call is not known, so that of the run is not, though each node says its own.
  const { id: both } = await workflows.run(id, { text: 'all', tags: ['a'] })
  await workflows.endOfRun(id, both)
  const all = await settled(both, 3 * taken)
  expect(all).toMatchObject({ tokens: 3 * taken, cost_nano_usd: null, prices_versions: [listVersion] })
  for (const node of ['one', 'each']) expect(nodeOf(all, node)).toMatchObject(calls(1))
  expect(nodeOf(all, 'other')).toMatchObject({ tokens: taken, cost_nano_usd: null })
})

test('a run that has spent its dollars calls no model any more', async () => {
  const before = provider.askedFor('gpt-4o').length
  const { id: run } = await workflows.run(id, { text: 'spend' }, '?wait=60')
  const end = await settled(run, 2 * taken)
  expect(end).toMatchObject({
    status: 'failed',
    error: { code: 'budget_exceeded', node: 'third' },
    ...calls(2),
  })
  expect(provider.askedFor('gpt-4o').length - before).toBe(2)
})

test('a failure that nobody handles cancels its siblings, and nothing more starts', async () => {
  const before = provider.askedFor('silent').length
  const { id: run } = await workflows.run(id, { text: 'fail' })
  await eventually(() => provider.askedFor('silent').length > before && provider.askedFor('failing').length)
  failing.resolve()
  const end = await workflows.endOfRun(id, run)
  expect(end).toMatchObject({ status: 'failed', error: { code: 'schema_mismatch', node: 'bad' } })
  expect(nodeOf(end, 'bad')?.status).toBe('failed')
  expect(nodeOf(end, 'sibling')?.status).toBe('cancelled')
  expect(nodeOf(end, 'after')).toBeUndefined()
  expect(provider.askedFor('silent').length - before).toBe(1)
})

test('an attempt that takes longer than its `timeout_sec` fails, and its node says so', async () => {
  const run = await workflows.run(id, { text: 'slow' }, '?wait=60')
  expect(run).toMatchObject({ status: 'succeeded', output: 'timed_out' })
  expect(nodeOf(run, 'slow')).toMatchObject({ status: 'failed', error: { code: 'timed_out' }, attempt: 1 })
})
