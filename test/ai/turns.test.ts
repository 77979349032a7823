import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { AiWorkflow } from '../../models/ai/ai-workflows.ts'
import { lookAtRow } from '../../models/ai/run-node-ends.ts'
import { AiRunNode } from '../../models/ai/run-node-records.ts'
import { AiRunTokens } from '../../models/ai/run-tokens.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { insertDeployment } from '../support/ai/inserted-runs.ts'
import { asking } from '../support/ai/runner-calls.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// A runner ends a node and begins the next one by one request. The deployments have no container.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})
afterAll(removeTenants)

const nodes = {
  one: { kind: 'template', value: { first: '${input.text}' } },
  two: { kind: 'template', needs: ['one'], value: '${nodes.one.output.first}' },
  three: { kind: 'template', needs: ['two'], value: '${nodes.two.output}' },
}

/** An open run, and how its runner says that a node has succeeded. */
async function open() {
  const { id } = await workflows.published(
    specOf(nodes, { models: {}, budget: { wall_sec: 600 }, output: '${nodes.two.output}' }),
  )
  const ask = await asking(await insertDeployment(tenant.id, id))
  const { id: run } = await workflows.run(id, { text: 'hello' })
  const its = { _id: run, tenant_id: tenant.id }
  const begin = (node: string, attempt = 1) => ask('POST', `${run}/nodes/${node}/begin?attempt=${attempt}`)
  const turn = (
    node: string,
    output: unknown,
    next: unknown,
    { attempt = 1, tokens = [] as unknown[] } = {},
  ) =>
    ask('POST', `${run}/nodes/${node}/turn?attempt=${attempt}`, {
      case: null,
      output: JSON.stringify(output),
      tokens,
      next,
    })
  const end = async () => (await workflows.undeploy(id)).operation.success()
  return { id, run, its, ask, begin, turn, end }
}
const given = (values: unknown) => JSON.stringify(values)
const begunWith = (values: unknown) => ({
  status: 200,
  body: { begun: { done: null, given: given(values) } },
})
const input = { text: 'hello' }

test('a turn ends a node and begins the next with its output, and repeated it changes nothing', async () => {
  const { id, run, its, begin, turn, end } = await open()
  await begin('one')
  const first = { first: 'h' }
  const values = { input, nodes: { one: { status: 'succeeded', output: first } } }
  for (let time = 0; time < 2; time++)
    expect(await turn('one', first, { node: 'two' })).toMatchObject(begunWith(values))
  const { nodes: records } = await workflows.getRun(id, run)
  expect(records).toMatchObject([
    { node: 'one', status: 'succeeded', attempt: 1 },
    { node: 'two', status: 'running', attempt: 1 },
  ])
  const [, two] = records
  expect(two?.['input_sha256']).toMatch(/^[0-9a-f]{64}$/)
  const again = await AiRun.findOne(its).lean()
  expect(again?.output_bytes).toBe(JSON.stringify(first).length)

  // Another attempt has begun: this one writes no end, and begins nothing.
  await begin('two', 2)
  expect(await turn('two', 'late', { node: 'three' })).toMatchObject({
    status: 409,
    body: { code: 'attempt_over' },
  })
  expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: run })).toBe(2)
  const last = await turn('two', 'x', 'output', { attempt: 2 })
  expect(last).toMatchObject(begunWith({ input, nodes: { two: { status: 'succeeded', output: 'x' } } }))
  await end()
})

test('the last turn ends the run with its output, once', async () => {
  const { id, run, its, begin, turn, end } = await open()
  await begin('one')
  for (let time = 0; time < 2; time++)
    expect(await turn('one', { first: 'h' }, { output: '"o"' })).toEqual({
      status: 200,
      body: { begun: null, output: true },
    })
  const { output, output_bytes } = (await AiRun.findOne(its).lean()) ?? {}
  expect(output).toEqual({ bytes: 3, json: '"o"', blob: null })
  expect(output_bytes).toBe('{"first":"h"}"o"'.length)
  expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: run })).toBe(1)
  expect(await workflows.getRun(id, run)).toMatchObject({
    status: 'succeeded',
    output: 'o',
    ended_at: expect.any(String),
  })
  expect((await AiWorkflow.findOne({ _id: id, tenant_id: tenant.id }).lean())?.runs_open).toBe(0)
  expect(await begin('two')).toMatchObject({ status: 409, body: { code: 'attempt_over' } })
  expect((await lookAtRow(its, ['one'])).isOver).toBe(true)
  await end()
})

test('a run whose last call is not counted yet gets its output, and its workflow ends it', async () => {
  const { id, run, its, begin, turn, end } = await open()
  await begin('one')
  const month = '2026-11'
  const call = { purpose_kind: 'run', purpose_id: run, node: 'one', month, endpoint: 'chat' } as const
  const lease_until = new Date(Date.now() + 600_000)
  const open_call = { _id: newId(), tenant_id: tenant.id, ...call, lease_until, created_at: new Date() }
  await new LlmCall(open_call).save()
  expect(await turn('one', { first: 'h' }, { output: '"o"' })).toMatchObject({ body: { output: true } })
  expect(await workflows.getRun(id, run)).toMatchObject({ status: 'running', output: null })
  expect(await lookAtRow(its, ['one', 'two'])).toMatchObject({
    hasBegun: false,
    hasOutput: true,
    isOver: false,
  })
  await LlmCall.deleteOne({ _id: open_call._id, tenant_id: tenant.id })
  await end()
})

test('an output that is too deep, or for which the run has no room, does not keep the node from its end', async () => {
  const { id, run, its, begin, turn, end } = await open()
  const nothing = { status: 200, body: { begun: null } }
  await begin('one')
  const deep = '['.repeat(65) + ']'.repeat(65)
  expect(await turn('one', { first: 'h' }, { output: deep })).toEqual(nothing)
  await begin('two')
  await AiRun.updateOne(its, { $set: { output_bytes: 64 * 1024 ** 2 - 4 } })
  expect(await turn('two', 'x', { output: '"o"' })).toMatchObject({
    status: 200,
    body: { begun: null, output: false },
  })
  expect((await workflows.getRun(id, run)).nodes.map(({ status }) => status)).toEqual([
    'succeeded',
    'succeeded',
  ])
  expect((await AiRun.findOne(its).lean())?.output).toBeNull()
  await end()
})

test('a turn takes the last of what models have said along, once', async () => {
  const { run, begin, turn, end } = await open()
  await begin('one')
  const tokens = [{ node: 'one', attempt: 1, call: 0, text: 'hello' }]
  for (let time = 0; time < 2; time++)
    expect((await turn('one', { first: 'h' }, null, { tokens })).status).toBe(200)
  const kept = await AiRunTokens.find({ tenant_id: tenant.id, run_id: run }).lean()
  expect(kept.map((batch) => batch.tokens)).toEqual([tokens])
  await end()
})

// In the future, so that the dispatcher leaves the run alone.
const cancelled = { cancel_requested_at: new Date(Date.now() + 3_600_000) }
const late = { started_at: new Date(Date.now() - 600_001) }
test.each([
  ['begins', 'is to be cancelled', cancelled, { node: 'two' }],
  ['begins', 'has used its time', late, { node: 'two' }],
  ['becomes the output', 'is to be cancelled', cancelled, { output: '"o"' }],
  ['becomes the output', 'has used its time', late, { output: '"o"' }],
])('nothing %s of a run that %s, and the node before has ended', async (_, _why, fields, next) => {
  const { id, run, its, begin, turn, end } = await open()
  await begin('one')
  await AiRun.updateOne(its, { $set: fields })
  expect(await turn('one', { first: 'h' }, next)).toEqual({ status: 200, body: { begun: null } })
  expect((await AiRun.findOne(its).lean())?.output).toBeNull()
  expect((await workflows.getRun(id, run)).nodes).toMatchObject([{ node: 'one', status: 'succeeded' }])
  await end()
})

test('a turn of a run that is not the runner’s is not found', async () => {
  const [mine, other] = [await open(), await open()]
  await other.begin('one')
  const path = `${other.run}/nodes/one/turn?attempt=1`
  const body = { case: null, output: '1', tokens: [], next: { node: 'two' } }
  expect(await mine.ask('POST', path, body)).toMatchObject({ status: 404 })
  expect((await workflows.getRun(other.id, other.run)).nodes).toMatchObject([
    { node: 'one', status: 'running' },
  ])
  for (const { end } of [mine, other]) await end()
})
