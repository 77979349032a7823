import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { runWorkflowId } from '../../lib/operation-workflows.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { ledgerOf } from '../../models/llm/ledgers.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { decodedHistory, textOfHistory } from '../support/histories.ts'
import { isLong } from '../support/long.ts'
import { said, text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider, type Treatment } from '../support/model-provider/server.ts'
import { modelProviderPorts, stackSettings } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs whose nodes call models, by their runner's door and the stack's gateway for models.

const released = Promise.withResolvers<void>()
const killed = Promise.withResolvers<void>()
const gone = Promise.withResolvers<void>()
/** Models that answer when the test says so. */
const told = ['left', 'right', 'joined'].map((model) => ({ model, ...Promise.withResolvers<void>() }))
const treatments: Record<string, (count: number) => Treatment> = {
  classifier: () => ({ says: '{"topic":"billing","sure":0.9}' }),
  // The gateway itself asks twice.
  shaky: (count) => (count <= 2 ? { status: 503 } : {}),
  liar: (count) => ({ says: count === 1 ? '{"topic":7}' : '{"topic":"other","sure":1}' }),
  refusing: () => ({ status: 400 }),
  slow: () => ({ waits: { after: 0, for: released.promise } }),
  limping: (count) => (count <= 2 ? { status: 503 } : {}),
  held: () => ({ waits: { after: 0, for: gone.promise } }),
  orphaned: () => ({ waits: { after: 0, for: killed.promise } }),
  ...Object.fromEntries(
    told.map(({ model, promise }) => [model, () => ({ waits: { after: 0, for: promise } })]),
  ),
}
const temporal = temporalClient(stackSettings())
let provider: ModelProvider
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let connector: string
beforeAll(async () => {
  provider = await startModelProvider(
    (model, count) => treatments[model]?.(count) ?? {},
    modelProviderPorts.runs,
  )
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  connector = await insertConnector(tenant.id, 'openai_compatible', provider.base_url, {
    token: 'planted-secret',
  })
})
afterAll(async () => {
  released.resolve()
  killed.resolve()
  gone.resolve()
  for (const { resolve } of told) resolve()
  await removeTenants()
  await provider.close()
  await temporal.connection.close()
})

const taken = said.usage.input + said.usage.output
const schema = {
  type: 'object',
  properties: { topic: { type: 'string' }, sure: { type: 'number' } },
  required: ['topic', 'sure'],
}

/** Asks this model for what the run's text is about. */
const asking = (model: string, more: object = {}) => ({
  kind: 'llm',
  model,
  messages: [
    { role: 'system', content: 'Be brief' },
    { role: 'user', content: 'What is this? ${input.text}' },
  ],
  ...more,
})

/** A deployed workflow that may use these models. */
async function deployed(nodes: Record<string, unknown>, names: string[], more: object = {}): Promise<string> {
  const parameters = { max_tokens: 30, temperature: 0 }
  const models = Object.fromEntries(names.map((model) => [model, { connector, model, parameters }]))
  const { id } = await workflows.published(specOf(nodes, { models, ...more }))
  await (await workflows.deploy(id)).operation.success()
  return id
}
const undeploy = async (id: string): Promise<void> => {
  await (await workflows.undeploy(id)).operation.success()
}

test('a model’s answer goes to the nodes that name it, and the run knows what it took', async () => {
  const id = await deployed(
    {
      classify: asking('classifier', { output_schema: schema }),
      route: {
        kind: 'switch',
        needs: ['classify'],
        cases: [{ name: 'billing', when: "nodes.classify.output.topic == 'billing'" }],
        default: 'other',
      },
      answer: asking('writer', { needs: ['route.billing'] }),
    },
    ['classifier', 'writer'],
    { output: { topic: '${nodes.classify.output.topic}', answer: '${nodes.answer.output}' } },
  )
  const run = await workflows.run(id, { text: 'My invoice' }, '?wait=60')
  expect(run).toMatchObject({
    status: 'succeeded',
    output: { topic: 'billing', answer: text },
    tokens: 2 * taken,
  })
  const [asked] = provider.askedFor('classifier')
  expect(asked?.headers.authorization).toBe('Bearer planted-secret')
  expect(asked?.body).toMatchObject({
    messages: [
      { role: 'system', content: 'Be brief' },
      { role: 'user', content: 'What is this? My invoice' },
    ],
    max_tokens: 30,
    temperature: 0,
    response_format: { type: 'json_schema', json_schema: { schema } },
  })
  expect(provider.askedFor('writer')).toHaveLength(1)
  const calls = await LlmCall.find({ tenant_id: tenant.id, purpose_id: run.id }).lean()
  expect(calls.map(({ purpose_kind, status }) => [purpose_kind, status])).toEqual([
    ['run', 'succeeded'],
    ['run', 'succeeded'],
  ])
  const ledger = await ledgerOf(tenant.id, { kind: 'run', id: run.id })
  expect(ledger).toMatchObject({ budget_tokens: 200_000, tokens: 2 * taken })
  expect(ledger?.closed_at).not.toBeNull()
  const history = textOfHistory(await decodedHistory(temporal, runWorkflowId(run.id)))
  expect(history).toContain('classify')
  for (const value of ['My invoice', '"sure"', text]) expect(history).not.toContain(value)
  await undeploy(id)
})

test('a call that fails, or an answer that does not fit, is attempted again; a refusal is not', async () => {
  const retry = { max: 2, backoff_sec: 0.1 }
  const id = await deployed(
    {
      again: asking('shaky', { retry }),
      fits: asking('liar', { retry, output_schema: schema }),
      never: asking('refusing', { retry, on_error: { value: 'none' } }),
    },
    ['shaky', 'liar', 'refusing'],
    { output: ['${nodes.again.output}', '${nodes.fits.output.topic}', '${nodes.never.output}'] },
  )
  const run = await workflows.run(id, { text: 'x' }, '?wait=60')
  expect(run).toMatchObject({ status: 'succeeded', output: [text, 'other', 'none'] })
  const nodes = Object.fromEntries(run.nodes.map((node) => [node.node, node]))
  expect(nodes).toMatchObject({
    again: { status: 'succeeded', attempt: 2 },
    fits: { status: 'succeeded', attempt: 2 },
    never: { status: 'failed', attempt: 1 },
  })
  expect(provider.askedFor('refusing')).toHaveLength(1)
  // The second attempt got the first answer from the gateway, and then asked for another.
  expect(provider.askedFor('liar')).toHaveLength(2)
  await undeploy(id)
})

/** Kills the tenant's only runner. Its engine starts it again. */
async function killRunner(): Promise<void> {
  const its = { tenant_id: tenant.id, runner: true, status: 'running' as const }
  const runner = await instanceKinds.container.model.findOne(its).lean()
  await engine.kill(runner?._id ?? '')
}

/** What the Temporal UI shows of a run’s activities, in the order of their beginnings. */
async function summariesOf(runId: string): Promise<unknown[]> {
  const { events } = await decodedHistory(temporal, runWorkflowId(runId))
  return events.flatMap(({ activityTaskScheduledEventAttributes: its, userMetadata }) =>
    its ? [JSON.parse(Buffer.from(userMetadata?.summary?.data ?? []).toString()) as unknown] : [],
  )
}

/** The current details of a run, as the Temporal UI asks for them. */
async function detailsOf(runId: string): Promise<string> {
  const handle = temporal.workflow.getHandle(runWorkflowId(runId))
  const { currentDetails } = await handle.query<{ currentDetails: string }>('__temporal_workflow_metadata')
  return currentDetails
}

test('operators see in Temporal which nodes of a run are at work, and then how it ended', async () => {
  const names = told.map(({ model }) => model)
  const id = await deployed(
    {
      left: asking('left'),
      right: asking('right'),
      joined: asking('joined', { needs: ['left', 'right'] }),
      last: { kind: 'template', needs: ['joined'], value: '${nodes.joined.output}' },
    },
    names,
    { output: '${nodes.last.output}' },
  )
  const { id: runId } = await workflows.run(id, { text: 'x' })
  for (const [at, details] of ['left, right', 'right', 'joined and what follows'].entries()) {
    await eventually(() => provider.askedFor(names[at] ?? '').length === 1)
    await eventually(async () => (await detailsOf(runId)) === `running ${details}`)
    told[at]?.resolve()
  }
  expect(await workflows.endOfRun(id, runId)).toMatchObject({ status: 'succeeded', output: text })
  expect(await summariesOf(runId)).toEqual(['left', 'right', 'joined → last → output'])
  await eventually(async () => (await detailsOf(runId)) === 'succeeded')
  await undeploy(id)
})

test('nodes in a row are one activity, until one fails or their runner is killed: that one is attempted again', async () => {
  const retry = { max: 1, backoff_sec: 0.1 }
  const id = await deployed(
    {
      first: asking('writer'),
      second: asking('limping', { needs: ['first'], retry }),
      third: asking('held', { needs: ['second'], retry }),
      last: { kind: 'template', needs: ['third'], value: '${nodes.third.output}' },
    },
    ['writer', 'limping', 'held'],
    { output: '${nodes.last.output}' },
  )
  const before = provider.askedFor('writer').length
  const { id: runId } = await workflows.run(id, { text: 'x' })
  await eventually(() => provider.askedFor('held').length === 1)
  await killRunner()
  gone.resolve()
  const run = await workflows.endOfRun(id, runId)
  expect(run).toMatchObject({ status: 'succeeded', output: text, tokens: 3 * taken })
  expect(run.nodes.map(({ node, status, attempt }) => [node, status, attempt])).toEqual([
    ['first', 'succeeded', 1],
    ['second', 'succeeded', 2],
    ['third', 'succeeded', 2],
    ['last', 'succeeded', 1],
  ])
  // The gateway for models asks twice before a call has failed.
  expect(['writer', 'limping', 'held'].map((model) => provider.askedFor(model).length)).toEqual([
    before + 1,
    3,
    1,
  ])
  expect(await summariesOf(runId)).toEqual([
    'first → second → third → last → output',
    'second',
    'third → last → output',
    'third',
    'last → output',
  ])
  await undeploy(id)
})

test('a call whose runner is killed is not made again, and is paid once', async () => {
  const id = await deployed({ ask: asking('orphaned') }, ['orphaned'], { output: '${nodes.ask.output}' })
  const { id: runId } = await workflows.run(id, { text: 'x' })
  await eventually(() => provider.askedFor('orphaned').length === 1)
  await killRunner()
  killed.resolve()
  const run = await workflows.endOfRun(id, runId)
  expect(run).toMatchObject({ status: 'succeeded', output: text, tokens: taken })
  expect(run.nodes).toMatchObject([{ node: 'ask', attempt: 2 }])
  expect(provider.askedFor('orphaned')).toHaveLength(1)
  const calls = await LlmCall.find({ tenant_id: tenant.id, purpose_id: runId }).sort({ _id: 1 }).lean()
  expect(calls).toMatchObject([{ status: 'interrupted' }, { status: 'succeeded', code: 'kept' }])
  await undeploy(id)
})

test('a run that has used its tokens calls no model any more', async () => {
  const id = await deployed(
    { one: asking('writer'), two: asking('writer', { needs: ['one'] }) },
    ['writer'],
    { budget: { tokens: taken, wall_sec: 600 } },
  )
  const before = provider.askedFor('writer').length
  const run = await workflows.run(id, { text: 'x' }, '?wait=60')
  expect(run).toMatchObject({
    status: 'failed',
    error: { code: 'budget_exceeded', node: 'two' },
    tokens: taken,
  })
  expect(provider.askedFor('writer').length - before).toBe(1)
  await undeploy(id)
})

test('a run that is cancelled ends while its model has not answered, and calls none any more', async () => {
  const id = await deployed({ wait: asking('slow') }, ['slow'])
  const { id: runId } = await workflows.run(id, { text: 'x' })
  await eventually(() => provider.askedFor('slow').length === 1)
  expect(await workflows.askCancel(id, runId)).toMatchObject({ status: 200 })
  expect(await workflows.endOfRun(id, runId)).toMatchObject({ status: 'cancelled' })
  expect((await ledgerOf(tenant.id, { kind: 'run', id: runId }))?.closed_at).not.toBeNull()
  if (isLong) await eventually(() => provider.wasLeft('slow')) // the gateway reads on for half a minute
  expect(provider.askedFor('slow')).toHaveLength(1)
  await undeploy(id)
})
