import { afterAll, beforeAll, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { removeRuns } from '../../models/ai/run-removal.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { eventually } from '../support/eventually.ts'
import { followRun } from '../support/follow-run.ts'
import { listen } from '../support/mcp-servers.ts'
import { text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { modelProviderPorts, toolServers } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs with redacted values: their nodes have them, and nobody who reads the run.

const card = 'planted-card-4111'
const mark = '[redacted]'
/** What the server was asked. */
const asked: string[] = []
let mayFinish = false

let provider: ModelProvider
let server: Awaited<ReturnType<typeof listen>>
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let models: object
beforeAll(async () => {
  server = await listen((request, response) => {
    const { url = '' } = request
    asked.push(decodeURIComponent(url))
    if (url.startsWith('/gone') || (url.startsWith('/finish') && !mayFinish))
      return response.writeHead(404).end()
    return response.setHeader('content-type', 'application/json').end(`{"total":7,"said":"${card}"}`)
  }, toolServers.redacted)
  provider = await startModelProvider(
    (model) =>
      model === 'judge' ? { says: JSON.stringify({ reasons: `It says ${card}`, verdict: 'pass' }) } : {},
    modelProviderPorts.redacted,
  )
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  const connector = await insertConnector(tenant.id, 'openai_compatible', provider.base_url)
  const parameters = { max_tokens: 30 }
  models = Object.fromEntries(['writer', 'judge'].map((model) => [model, { connector, model, parameters }]))
})
afterAll(async () => {
  await removeTenants()
  await provider.close()
  server.close()
})

const input_schema = {
  type: 'object',
  properties: { name: { type: 'string' }, card: { type: 'string', 'x-redact': true } },
  required: ['name', 'card'],
}
const shownTotal = {
  type: 'object',
  properties: { total: { type: 'integer', 'x-redact': false }, said: { type: 'string' } },
}
const at = (path: string, more: object = {}) => ({
  kind: 'http',
  method: 'GET',
  url: `${server.origin}${path}`,
  retry: { max: 0 },
  ...more,
})
const writer = (content: string) => ({
  kind: 'llm',
  model: 'writer',
  messages: [{ role: 'user', content }],
})

/** All that MongoDB has of this tenant's runs, as it has it. */
async function stored(): Promise<string> {
  const { db } = mongoose.connection
  const names = (await db?.listCollections().toArray())?.map(({ name }) => name) ?? []
  const all: unknown[] = []
  for (const name of names.filter((one) => one.startsWith('ai_run') || one.startsWith('idempot')))
    all.push(await db?.collection(name).find({ tenant_id: tenant.id }).toArray())
  return JSON.stringify(all)
}

test('nobody reads a redacted value of a run, its nodes have it, and a retry takes over what was made of it', async () => {
  const child = await workflows.published(
    specOf(
      { echo: { kind: 'template', value: 'Charged ${input.what}' } },
      {
        models: {},
        input_schema: { type: 'object', properties: { what: { type: 'string' } } },
        output: '${nodes.echo.output}',
      },
    ),
  )
  await (await workflows.deploy(child.id)).operation.success()
  const { id } = await workflows.published(
    specOf(
      {
        greet: { kind: 'template', value: 'Hello ${input.name}' },
        charge: at('/charge/${input.card}', { output_schema: shownTotal }),
        quote: writer('Say ${input.card}'),
        tell: writer('Say ${input.name}'),
        gone: at('/gone/${input.card}', { on_error: { value: { status: 0, headers: {}, body: null } } }),
        each: { kind: 'map', items: '[input.card, input.name]', do: { kind: 'template', value: '${item}!' } },
        other: { kind: 'workflow', workflow: child.id, input: { what: '${input.card}' } },
        ask: {
          kind: 'approve',
          needs: ['charge', 'quote', 'tell', 'gone', 'each', 'other'],
          message: 'Charge ${input.card} of ${input.name}?',
          deadline_sec: 600,
        },
        finish: at('/finish/${nodes.charge.output.body.said}', { needs: ['ask'] }),
      },
      {
        models,
        input_schema,
        output: {
          greet: '${nodes.greet.output}',
          total: '${nodes.charge.output.body.total}',
          each: '${nodes.each.output}',
          finish: '${nodes.finish.output}',
          by: '${size(nodes.ask.output.by) > 0}',
        },
      },
    ),
  )
  await (await workflows.deploy(id)).operation.success()
  const key = { 'idempotency-key': 'once' }
  const { body: accepted } = await workflows.askRun(id, { input: { name: 'Ann', card } }, '', key)
  expect(accepted).toMatchObject({ input: { name: 'Ann', card: mark } })
  const run = accepted['id'] as string
  const stream = await followRun(tenant.owner, id, run)
  const askOf = async () => (await workflows.getRun(id, run)).nodes.find(({ node }) => node === 'ask')
  await eventually(async () => (await askOf())?.status === 'waiting')
  expect((await askOf())?.asked?.message).toBe(`Charge ${mark} of Ann?`)
  await workflows.askDecision(id, run, 'ask', { approved: true, comment: '' })
  const failed = await workflows.endOfRun(id, run)
  expect(failed).toMatchObject({
    status: 'failed',
    input: { name: 'Ann', card: mark },
    error: { code: 'http_404', message: mark, node: 'finish' },
  })
  const outputs = async (of: string) => {
    const names = ['greet', 'charge', 'quote', 'tell', 'gone', 'each', 'other']
    const nodes = await Promise.all(names.map((name) => workflows.runNode(id, of, name)))
    return Object.fromEntries(nodes.map(({ node, output }) => [node, output]))
  }
  const shown = {
    greet: 'Hello Ann',
    charge: { status: 200, headers: mark, body: { total: 7, said: mark } },
    quote: mark,
    tell: text,
    gone: null,
    each: mark,
    other: mark,
  }
  const chargeShown = { ...shown, charge: { ...shown.charge, headers: expect.anything() } }
  expect(await outputs(run)).toEqual(chargeShown)
  expect((await workflows.runNode(id, run, 'gone')).error).toEqual({ code: 'http_404', message: mark })
  await stream.ended
  expect([stream.textOf('quote', 1), stream.textOf('tell', 1)]).toEqual(['', text])
  const [called] = (await workflows.runs(child.id)).items
  const inner = await workflows.getRun(child.id, called?.id ?? '')
  expect(inner).toMatchObject({ status: 'succeeded', input: mark, output: mark })
  expect((await workflows.runNode(child.id, inner.id, 'echo')).output).toBe(mark)

  mayFinish = true
  const again = await workflows.retry(id, run)
  expect(again.input).toEqual({ name: 'Ann', card: mark })
  const end = await workflows.endOfRun(id, again.id)
  expect(end).toMatchObject({
    status: 'succeeded',
    output: { greet: 'Hello Ann', total: 7, each: mark, finish: { status: 200, body: mark }, by: true },
  })
  expect(await outputs(again.id)).toEqual(chargeShown)
  const reused = end.nodes.filter(({ reused_from }) => reused_from === run).map(({ node }) => node)
  expect(reused.toSorted()).toEqual(['ask', 'charge', 'each', 'greet', 'other', 'quote', 'tell'])
  // The nodes had the values themselves, the second run those that the first had made.
  expect(asked.filter((url) => url === `/charge/${card}`)).toHaveLength(1)
  expect(asked.filter((url) => url === `/finish/${card}`)).toHaveLength(2)
  expect(provider.askedFor('writer').filter(({ bytes }) => bytes.includes(card))).toHaveLength(1)
  expect(provider.askedFor('writer')).toHaveLength(2)

  const seen = JSON.stringify([stream.events, failed, end, inner, await workflows.runs(id)])
  expect(seen).not.toContain(card)
  expect(await stored()).not.toContain(card)
  expect(await stored()).toContain('Hello Ann')

  const keys = () => mongoose.connection.collection('ai_run_keys').countDocuments({ tenant_id: tenant.id })
  expect(await keys()).toBe(3)
  for (const one of [id, child.id]) await (await workflows.undeploy(one)).operation.success()
  await removeRuns({ tenant_id: tenant.id })
  expect(await keys()).toBe(0)
})

test('a judge sees redacted values, and its reasons are not shown', async () => {
  const { id } = await workflows.published(
    specOf(
      { say: { kind: 'template', value: 'For ${input.card}' } },
      { models, input_schema, output: '${nodes.say.output}' },
    ),
  )
  const put = (name: string, assertion: object) =>
    workflows.putEval(id, { name, input: { name: 'Ann', card }, assertion })
  await put('judged', { kind: 'judge', rubric: 'It names the card', model: 'judge' })
  await put('same', { kind: 'equals', value: `For ${card}` })
  await (await workflows.deploy(id)).operation.success()
  const { operation } = await workflows.runEvals(id)
  await operation.success()
  const [result] = (await workflows.evalResults(id)).items
  expect(result?.verdict).toBe('passed')
  expect(result?.cases.map(({ name, attempts: [one] }) => [name, one?.outcome, one?.reasons])).toEqual(
    expect.arrayContaining([
      ['judged', 'pass', mark],
      ['same', 'pass', null],
    ]),
  )
  expect(provider.askedFor('judge')[0]?.bytes).toContain(`For ${card}`)
  expect(JSON.stringify(result)).not.toContain(card)
  await (await workflows.undeploy(id)).operation.success()
})
