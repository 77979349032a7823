import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { LlmCall } from '../../models/llm/calls.ts'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { AiRunCall, callOnce, type CallResult } from '../../models/ai/run-calls.ts'
import { beginNode } from '../../models/ai/run-nodes.ts'
import { CallFault } from '../../lib/runner-calls.ts'
import { insertDeployment } from '../support/ai/inserted-runs.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { toolsOf } from '../support/clients/tools.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { listen, mcpAnswers, openEverything } from '../support/mcp-servers.ts'
import { said, text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { modelProviderPorts, toolServers } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs whose nodes make requests by HTTP, call tools, and ask a model that calls tools. The API carries the calls out: the runner has
// no network.

const secret = 'planted-secret-of-the-weather'
const killed = Promise.withResolvers<void>()
/** What the servers were asked. */
const calls: { city: unknown; authorization: string | undefined }[] = []
const orders: string[] = []
let holds = false

let provider: ModelProvider
let everything: Awaited<ReturnType<typeof openEverything>>
let counted: Awaited<ReturnType<typeof listen>>
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let id: string
beforeAll(async () => {
  everything = await openEverything('streamableHttp', toolServers.runs)
  counted = await listen((request, response) => {
    const { url = '', headers } = request
    if (url === '/gone') return response.writeHead(404).end()
    if (url.startsWith('/orders/')) {
      orders.push(url)
      return response.setHeader('content-type', 'application/json').end('{"total":7}')
    }
    return mcpAnswers({
      list: () => ({
        tools: [{ name: said.tool.name, description: 'The weather', inputSchema: { type: 'object' } }],
      }),
      async call(params) {
        const { city } = params['arguments'] as { city: unknown }
        calls.push({ city, authorization: headers.authorization })
        if (holds) await killed.promise
        return { result: { content: [{ type: 'text', text: 'Rain' }] } }
      },
    })(request, response)
  }, toolServers.counted)
  provider = await startModelProvider(() => ({}), modelProviderPorts.tools)
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  id = await deployed()
})
afterAll(async () => {
  killed.resolve()
  await removeTenants()
  await provider.close()
  counted.close()
  await everything.close()
})

async function deployed(): Promise<string> {
  const tools = toolsOf(tenant.owner)
  const mcp = { kind: 'mcp', transport: 'streamable_http' }
  const city = await tools.make({ ...mcp, url: everything.url })
  // Its output then has the type of what the server lists.
  expect(await tools.probe(city.id)).toMatchObject({ status: 200 })
  const weather = await tools.make({
    ...mcp,
    url: `${counted.origin}/mcp`,
    auth: { type: 'bearer' },
    secret,
  })
  const connector = await insertConnector(tenant.id, 'openai_compatible', provider.base_url)
  const noAnswer = { on_error: { value: { status: 0, headers: {}, body: null } } }
  const noWeather = { on_error: { value: { temperature: 0, conditions: '', humidity: 0 } } }
  const order = {
    type: 'object',
    properties: { total: { type: 'integer' } },
    required: ['total'],
  }
  const made = await workflows.published(
    specOf(
      {
        order: {
          kind: 'http',
          method: 'GET',
          url: `${counted.origin}/orders/\${input.text}`,
          headers: { 'X-Text': '${input.text}' },
          output_schema: order,
        },
        gone: { kind: 'http', method: 'GET', url: `${counted.origin}/gone`, ...noAnswer },
        inside: { kind: 'http', method: 'GET', url: 'http://169.254.169.254/latest/meta-data', ...noAnswer },
        city: {
          kind: 'tool',
          tool: city.id,
          name: 'get-structured-content',
          arguments: { location: 'Chicago' },
        },
        wrong: {
          kind: 'tool',
          tool: city.name,
          name: 'get-structured-content',
          arguments: { location: '${input.text}' },
          retry: { max: 1, backoff_sec: 0.1 },
          ...noWeather,
        },
        ask: {
          kind: 'llm',
          model: 'talker',
          messages: [{ role: 'user', content: '${input.text}' }],
          tools: [{ tool: weather.id }],
        },
      },
      {
        models: { talker: { connector, model: 'talker', parameters: { max_tokens: 30 } } },
        output: {
          total: '${nodes.order.output.body.total + 1}',
          humidity: '${nodes.city.output.humidity}',
          answer: '${nodes.ask.output}',
        },
      },
    ),
  )
  await (await workflows.deploy(made.id)).operation.success()
  return made.id
}

const taken = said.usage.input + said.usage.output

test('a run has the answers of servers and tools, and its model those of the tools that it calls', async () => {
  const run = await workflows.run(id, { text: 'first' }, '?wait=60')
  expect(run).toMatchObject({
    status: 'succeeded',
    output: { total: 8, humidity: expect.any(Number), answer: text },
    tokens: 2 * taken,
  })
  const nodes = Object.fromEntries(run.nodes.map((node) => [node.node, node]))
  expect(nodes).toMatchObject({
    gone: { status: 'failed', attempt: 1, error: { code: 'http_404' } },
    inside: { status: 'failed', attempt: 1, error: { code: 'address_not_allowed' } },
    wrong: {
      status: 'failed',
      attempt: 2,
      error: { code: 'tool_failed', message: expect.stringMatching(/location/) },
    },
  })
  expect(orders).toEqual(['/orders/first'])
  expect(calls).toEqual([{ city: 'Oslo', authorization: `Bearer ${secret}` }])
  const [first, second] = provider.askedFor('talker')
  expect(first?.body).toMatchObject({
    tools: [{ type: 'function', function: { name: 'weather', description: 'The weather' } }],
  })
  expect(second?.body['messages']).toMatchObject([
    { role: 'user', content: 'first' },
    { role: 'assistant', tool_calls: [{ id: said.tool.id }] },
    { role: 'tool', tool_call_id: said.tool.id, content: 'Rain' },
  ])
})

test('a run whose runner is killed while a tool works repeats neither the tool’s call nor the model’s', async () => {
  const [asked, called] = [provider.askedFor('talker').length, calls.length]
  holds = true
  const { id: runId } = await workflows.run(id, { text: 'second' })
  await eventually(() => calls.length === called + 1)
  const its = { tenant_id: tenant.id, runner: true, status: 'running' as const }
  const runner = await instanceKinds.container.model.findOne(its).lean()
  await engine.kill(runner?._id ?? '')
  killed.resolve()
  const run = await workflows.endOfRun(id, runId)
  expect(run).toMatchObject({ status: 'succeeded', output: { total: 8, answer: text }, tokens: 2 * taken })
  expect(run.nodes.find(({ node }) => node === 'ask')).toMatchObject({ attempt: 2 })
  expect(calls).toHaveLength(called + 1)
  expect(provider.askedFor('talker')).toHaveLength(asked + 2)
  const made = await LlmCall.find({ tenant_id: tenant.id, purpose_id: runId }).sort({ _id: 1 }).lean()
  expect(made.map(({ status, code }) => [status, code])).toEqual([
    ['succeeded', null],
    ['succeeded', 'kept'],
    ['succeeded', null],
  ])
  expect(orders.filter((order) => order === '/orders/second')).toHaveLength(1)
  const open = { tenant_id: tenant.id, run_id: runId, status: 'open' as const }
  expect(await AiRunCall.countDocuments(open)).toBe(0)
})

const seven = async () => ({ output: '7', is_error: false })
const failing = async () => {
  throw new CallFault('refused', 'No', { permanent: false })
}

test('a call is made once, again after a failure, and by another process if its own is gone', async () => {
  const its = await workflows.published(
    specOf({ say: { kind: 'template', value: 1 } }, { models: {}, budget: { wall_sec: 600 } }),
  )
  const { _id, tenant_id } = await insertDeployment(tenant.id, its.id)
  const runner = { id: _id, tenant_id, workflow_id: its.id, version: 1 }
  const { id: run_id } = await workflows.run(its.id, { text: 'x' })
  await beginNode(runner, run_id, 'say', 1)
  let made = 0
  const ask = (what: string, make: () => Promise<CallResult>, attempt = 1, waitMs = 5_000) =>
    callOnce(runner, { run_id, node: 'say', attempt, asked: what }, waitMs, async () => {
      made++
      return make()
    })
  const done = { state: 'done', output: '7', is_error: false }

  expect(await Promise.all([1, 2, 3].map(() => ask('once', seven)))).toEqual([done, done, done])
  expect(made).toBe(1)

  const failed = { state: 'failed', code: 'refused', message: 'No', permanent: false }
  expect([await ask('shaky', failing), await ask('shaky', seven)]).toEqual([failed, failed])
  expect(made).toBe(2)
  await beginNode(runner, run_id, 'say', 2)
  await expect(ask('shaky', seven)).rejects.toMatchObject({ code: 'attempt_over' })
  expect(await ask('shaky', seven, 2)).toEqual(done)
  expect(made).toBe(3)

  const late = Promise.withResolvers<CallResult>()
  expect(await ask('lost', () => late.promise, 2, 0)).toEqual({ state: 'open' })
  const open = { tenant_id, run_id, status: 'open' as const }
  // Its process is gone.
  await AiRunCall.updateOne(open, { $set: { lease_until: new Date(0), claim: 'another' } })
  expect(await ask('lost', seven, 2)).toEqual(done)
  late.resolve({ output: '8', is_error: false })
  expect(await ask('lost', seven, 2)).toEqual(done)
  expect(made).toBe(5)

  const deep = `${'['.repeat(70)}${']'.repeat(70)}`
  expect(await ask('deep', async () => ({ output: deep, is_error: false }), 2)).toMatchObject({
    state: 'failed',
    code: 'too_large',
    permanent: true,
  })
  const aborted = Promise.withResolvers<void>()
  const waiting = { run_id, node: 'say', attempt: 2, asked: 'long' }
  const held = await callOnce(runner, waiting, 0, (signal) => {
    signal.addEventListener('abort', () => aborted.resolve())
    return aborted.promise.then(seven)
  })
  expect(held).toEqual({ state: 'open' })
  await workflows.askCancel(its.id, run_id)
  await workflows.endOfRun(its.id, run_id)
  await aborted.promise
  await expect(ask('after', seven, 2)).rejects.toMatchObject({ code: 'attempt_over' })
  await (await workflows.undeploy(its.id)).operation.success()
})
