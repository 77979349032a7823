import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { AiRunTokens } from '../../models/ai/run-tokens.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { toolsOf } from '../support/clients/tools.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { followRun } from '../support/follow-run.ts'
import { listen, mcpAnswers } from '../support/mcp-servers.ts'
import { said, text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider, type Treatment } from '../support/model-provider/server.ts'
import { platform, type RoleName, startAll } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { modelProviderPorts, toolServers } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Processes are killed while a run's model speaks, and while servers and tools have been asked and have not answered.

/** What was asked: the path, or the city of the tool, and the key by which a server can tell a repetition. */
const asked: { what: string; key: unknown }[] = []
const countOf = (what: string): number => asked.filter((one) => one.what === what).length
/** What is asked while this is held has no answer. */
let held: PromiseWithResolvers<void> | null = null
const speaking = Promise.withResolvers<void>()
/** The models that wait for this in their answers. */
const waiting = new Map([['speaker', speaking.promise]])

let provider: ModelProvider
let server: Awaited<ReturnType<typeof listen>>
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let connector: string
beforeAll(async () => {
  server = await listen((request, response) => {
    const { url = '', headers } = request
    if (url === '/mcp')
      return mcpAnswers({
        list: () => ({
          tools: [{ name: said.tool.name, description: 'The weather', inputSchema: { type: 'object' } }],
        }),
        async call() {
          asked.push({ what: 'tool', key: null })
          await held?.promise
          return { result: { content: [{ type: 'text', text: 'Rain' }] } }
        },
      })(request, response)
    asked.push({ what: url, key: headers['idempotency-key'] })
    const answer = () => response.setHeader('content-type', 'application/json').end('{"total":7}')
    void (url === '/held' ? held?.promise.then(answer) : answer())
  }, toolServers.counted)
  provider = await startModelProvider((model): Treatment => {
    const until = waiting.get(model)
    return until ? { waits: { after: 2, for: until } } : {}
  }, modelProviderPorts.tools)
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  connector = await insertConnector(tenant.id, 'openai_compatible', provider.base_url)
})
afterEach(startAll)
afterAll(async () => {
  held?.resolve()
  speaking.resolve()
  await removeTenants()
  await provider.close()
  server.close()
})

const inARow = ['one', 'two', 'three']

const deployed = async (nodes: Record<string, unknown>, output: unknown): Promise<string> => {
  const parameters = { max_tokens: 30 }
  const models = Object.fromEntries(
    ['talker', 'speaker', ...inARow].map((model) => [model, { connector, model, parameters }]),
  )
  const { id } = await workflows.published(
    specOf(nodes, { models, output, budget: { tokens: 200_000, wall_sec: 3_600 } }),
  )
  await (await workflows.deploy(id)).operation.success()
  return id
}
const ask = (model: string, more: object = {}) => ({
  kind: 'llm',
  model,
  messages: [{ role: 'user', content: '${input.text}' }],
  ...more,
})

const kill = (role: RoleName | 'runner'): Promise<void> =>
  role === 'runner' ? killRunners() : platform.restartKilled(role)

async function killRunners(): Promise<void> {
  const its = { tenant_id: tenant.id, runner: true, status: 'running' as const }
  const runners = await instanceKinds.container.model.find(its).lean()
  for (const { _id } of runners) await engine.kill(_id) // its engine starts it again
}

const roles = ['api', 'runner', 'worker', 'gateway', 'model-gateway', 'host', 'temporal', 'mongodb'] as const
const cases = roles.flatMap((role) => (['server', 'tool'] as const).map((of) => ({ role, of })))

let calling: Promise<string> | undefined
/** The first request is answered at once, and then a server and a tool are asked, which are held. */
async function callingWorkflow(): Promise<string> {
  const weather = await toolsOf(tenant.owner).make({
    kind: 'mcp',
    transport: 'streamable_http',
    url: `${server.origin}/mcp`,
  })
  const post = { kind: 'http', method: 'POST', body: '${input.text}', timeout_sec: 120 }
  return deployed(
    {
      first: { ...post, url: `${server.origin}/first` },
      server: { ...post, needs: ['first'], when: 'input.text == "server"', url: `${server.origin}/held` },
      tool: ask('talker', { needs: ['first'], when: 'input.text == "tool"', tools: [{ tool: weather.id }] }),
    },
    { first: '${nodes.first.output.body.total}', tool: '${has(nodes.tool.output) ? nodes.tool.output : ""}' },
  )
}

test.each(sampled(cases, 2))(
  'what was answered is not asked again if $role is killed while a $of has not answered',
  async ({ role, of }) => {
    const id = await (calling ??= callingWorkflow())
    const what = of === 'server' ? '/held' : 'tool'
    asked.length = 0
    const before = provider.askedFor('talker').length
    held = Promise.withResolvers<void>()
    const { id: run } = await workflows.run(id, { text: of })
    await eventually(() => countOf(what) === 1)
    await kill(role)
    held.resolve()
    expect(await workflows.endOfRun(id, run)).toMatchObject({
      status: 'succeeded',
      output: { first: 7, tool: of === 'tool' ? text : '' },
    })
    expect(countOf('/first')).toBe(1)
    // The API that had asked is gone: nobody knows whether there was an answer. A server can tell that it is the same request.
    expect(countOf(what)).toBe(role === 'api' ? 2 : 1)
    const keys = asked.filter((one) => one.what === what).map(({ key }) => key)
    expect(new Set(keys).size).toBe(1)
    expect(provider.askedFor('talker').length - before).toBe(of === 'tool' ? 2 : 0)
  },
)

let row: Promise<string> | undefined
const rowCases = roles.flatMap((role) => inARow.map((model) => ({ role, model })))

test.each(sampled(rowCases, 1))(
  'no call of nodes in a row is billed twice if $role is killed while the model $model answers',
  async ({ role, model }) => {
    const chain = inARow.map((name, at) => [name, ask(name, at > 0 ? { needs: [inARow[at - 1]] } : {})])
    row ??= deployed(Object.fromEntries(chain), '${nodes.three.output}')
    const id = await row
    const countAll = () => inARow.map((name) => provider.askedFor(name).length)
    const billed = () => inARow.map((name) => provider.billedFor(name))
    const [before, billedBefore] = [countAll(), billed()]
    const until = Promise.withResolvers<void>()
    waiting.set(model, until.promise)
    const { id: run } = await workflows.run(id, { text: 'x' })
    const place = inARow.indexOf(model)
    await eventually(() => countAll()[place] === (before[place] ?? 0) + 1)
    if (role === 'runner') await killRunners()
    else await platform.kill(role)
    until.resolve() // soon, as the gateway reads on for half a minute
    if (role !== 'runner') await platform.start(role)
    const end = await workflows.endOfRun(id, run)
    expect(end).toMatchObject({ status: 'succeeded', output: text })
    expect(end.nodes.map(({ node, status }) => [node, status])).toEqual(
      inARow.map((name) => [name, 'succeeded']),
    )
    expect(billed()).toEqual(billedBefore.map((count) => count + 1))
    // What a model gateway has under way is lost with it: another one asks again, and the provider can tell.
    const lost = role === 'model-gateway' ? 1 : 0
    expect(countAll()).toEqual(before.map((count, at) => count + 1 + (at === place ? lost : 0)))
    const calls = await LlmCall.find({ tenant_id: tenant.id, purpose_id: run }).lean()
    expect(calls.filter(({ code }) => code !== 'kept')).toHaveLength(inARow.length + lost)
  },
)

test('streams of a run go on behind what they have had if the API is killed, and repeat none of it', async () => {
  const id = await deployed({ say: ask('speaker'), also: ask('speaker') }, [
    '${nodes.say.output}',
    '${nodes.also.output}',
  ])
  const [first = ''] = said.pieces
  const { id: run } = await workflows.run(id, { text: 'x' })
  const open = await Promise.all([1, 2, 3].map(() => followRun(tenant.owner, id, run)))
  for (const stream of open)
    await eventually(() => stream.textOf('say', 1) === first && stream.textOf('also', 1) === first)
  // Each connection breaks: none is ended as if the run had been.
  const ends = Promise.allSettled(open.map(({ ended }) => ended))
  await platform.restartKilled('api')
  expect((await ends).map(({ status }) => status)).toEqual(open.map(() => 'rejected'))
  for (const { events } of open) expect(events.some(({ event }) => event === 'end')).toBe(false)

  const resumed = await Promise.all(open.map(({ lastId }) => followRun(tenant.owner, id, run, lastId)))
  const anew = await followRun(tenant.owner, id, run)
  speaking.resolve()
  await Promise.all([...resumed, anew].map(({ ended }) => ended))
  for (const [at, stream] of resumed.entries())
    for (const node of ['say', 'also']) {
      expect(`${open[at]?.textOf(node, 1)}${stream.textOf(node, 1)}`).toBe(text)
      expect(stream.events.filter(({ data }) => data['node'] === node).at(-1)?.data).toMatchObject({
        status: 'succeeded',
      })
    }
  expect([anew.textOf('say', 1), anew.textOf('also', 1)]).toEqual([text, text])
  for (const stream of [...resumed, anew])
    expect(stream.events.at(-1)).toMatchObject({ event: 'end', data: { status: 'succeeded' } })
  const ids = [...open, ...resumed].map(({ events }) => events.flatMap((one) => one.id ?? []))
  const kept = (await AiRunTokens.find({ tenant_id: tenant.id, run_id: run }).lean()).flatMap(
    ({ seq, tokens }) => tokens.map((_, index) => `${seq}.${index}`),
  )
  for (const at of open.keys())
    expect([...(ids[at] ?? []), ...(ids[at + open.length] ?? [])].toSorted()).toEqual(kept.toSorted())
})

test('an undeployment ends the runs in flight although their model, their runner and its host do nothing more', async () => {
  const id = await deployed({ say: ask('one') }, '${nodes.say.output}')
  const until = Promise.withResolvers<void>()
  waiting.set('one', until.promise)
  const before = provider.askedFor('one').length
  const runs = await Promise.all(Array.from({ length: 50 }, () => workflows.run(id, { text: 'x' })))
  // Half of them are at their model, the others wait for a place at the runner, or are on their way there.
  await eventually(() => provider.askedFor('one').length - before >= 25)
  await platform.kill('host')
  const { operation } = await workflows.undeploy(id)
  for (const { id: run } of runs) {
    const { status, error, nodes } = await workflows.endOfRun(id, run)
    expect([status, error?.code]).toEqual(['failed', 'undeployed'])
    for (const node of nodes) expect(node.status).toBe('cancelled')
  }
  expect(await operation.now()).toMatchObject({ state: 'running' }) // the container has not been removed
  until.resolve()
  await platform.start('host')
  await operation.success()
  expect(provider.askedFor('one').length - before).toBeLessThan(50)
})
