import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { AiRunTokens, tokenBounds } from '../../models/ai/run-tokens.ts'
import { insertDeployment } from '../support/ai/inserted-runs.ts'
import { asking } from '../support/ai/runner-calls.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { followRun } from '../support/follow-run.ts'
import { eventually } from '../support/eventually.ts'
import { said, text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider, type Treatment } from '../support/model-provider/server.ts'
import { modelProviderPorts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs that are watched while their models speak.

const released = Promise.withResolvers<void>()
const heard = Promise.withResolvers<void>()
const [first = ''] = said.pieces
const treatments: Record<string, (count: number) => Treatment> = {
  // After the role and one piece.
  held: () => ({ waits: { after: 2, for: released.promise } }),
  // A connection that breaks takes along what is on its way, and a call without any text is repeated within its attempt.
  broken: (count) => (count === 1 ? { breaksAfter: 2, waits: { after: 2, for: heard.promise } } : {}),
  fickle: (count) => (count === 1 ? { status: 400 } : {}),
}
let provider: ModelProvider
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  provider = await startModelProvider(
    (model, count) => treatments[model]?.(count) ?? {},
    modelProviderPorts.streams,
  )
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})
afterAll(async () => {
  for (const { resolve } of [released, heard]) resolve()
  await removeTenants()
  await provider.close()
})

const retry = { max: 2, backoff_sec: 0.1 }
const asks = (model: string, more: object = {}) => ({
  kind: 'llm',
  model,
  messages: [{ role: 'user', content: '${input.text}' }],
  retry,
  ...more,
})

test('a run streams what its models say, to who comes late and comes again, and its retry repeats none of it', async () => {
  const connector = await insertConnector(tenant.id, 'openai_compatible', provider.base_url)
  const names = ['held', 'broken', 'fickle']
  const parameters = { max_tokens: 30 }
  const { id } = await workflows.published(
    specOf(
      {
        write: asks('held'),
        again: asks('broken'),
        last: asks('fickle', { needs: ['write', 'again'] }),
      },
      {
        models: Object.fromEntries(names.map((model) => [model, { connector, model, parameters }])),
        output: ['${nodes.write.output}', '${nodes.again.output}', '${nodes.last.output}'],
      },
    ),
  )
  await (await workflows.deploy(id)).operation.success()
  const run = await workflows.run(id, { text: 'x' })

  const early = await followRun(tenant.owner, id, run.id)
  expect(early.type).toBe('text/event-stream')
  // The answer has not ended: its provider waits.
  await eventually(() => early.textOf('write', 1) === first)
  await eventually(() => early.textOf('again', 1) === first)
  heard.resolve()
  await eventually(() => early.textOf('again', 2) === text)
  const { lastId } = early
  await early.stop()
  const seen = early.textOf('again', 1)
  expect(text.startsWith(seen)).toBe(true)

  const resumed = await followRun(await tenant.user('viewer'), id, run.id, lastId)
  released.resolve()
  await resumed.ended
  const rest = said.pieces.slice(1).join('')
  expect(resumed.textOf('write', 1)).toBe(rest)
  expect(resumed.textOf('again', 2)).toBe('')
  expect(resumed.events.at(-1)).toMatchObject({
    event: 'end',
    data: { id: run.id, status: 'failed', error: { node: 'last' } },
  })

  const late = await followRun(tenant.owner, id, run.id)
  await late.ended
  expect([late.textOf('write', 1), late.textOf('again', 1), late.textOf('again', 2)]).toEqual([
    text,
    seen,
    text,
  ])
  const of = (events: typeof late.events, node: string) =>
    events.filter(({ event, data }) => event === 'node' && data['node'] === node).map(({ data }) => data)
  expect(of(late.events, 'write').at(-1)).toMatchObject({ status: 'succeeded', attempt: 1 })
  expect(of(late.events, 'last').at(-1)).toMatchObject({ status: 'failed' })
  expect(of(early.events, 'write')).toMatchObject([{ status: 'running', attempt: 1 }])

  const again = await workflows.retry(id, run.id)
  const end = await workflows.endOfRun(id, again.id)
  expect(end).toMatchObject({ status: 'succeeded', output: [text, text, text], retry_of: run.id })
  expect(Object.fromEntries(end.nodes.map(({ node, reused_from }) => [node, reused_from]))).toEqual({
    write: run.id,
    again: run.id,
    last: null,
  })
  expect(names.map((model) => provider.askedFor(model).length)).toEqual([1, 2, 2])
  expect(end['tokens']).toBe(said.usage.input + said.usage.output)
  await (await workflows.undeploy(id)).operation.success()
})

test('of what models say, the newest is kept; a run that has ended takes none, and others do not see it', async () => {
  const say = { kind: 'template', value: 'hello' }
  const { id } = await workflows.published(specOf({ say }, { models: {}, budget: { wall_sec: 600 } }))
  const ask = await asking(await insertDeployment(tenant.id, id))
  const run = await workflows.run(id, { text: 'x' })
  const tell = (piece: string) =>
    ask('POST', `${run.id}/tokens`, { tokens: [{ node: 'say', attempt: 1, call: 0, text: piece }] })
  const large = 'x'.repeat(tokenBounds.bytes / 4)
  for (let at = 0; at < 6; at++) expect((await tell(`${at}${large}`)).status).toBe(204)
  expect(await Promise.all(['a', 'b', 'c'].map(tell))).toMatchObject(
    [204, 204, 204].map((status) => ({ status })),
  )
  const kept = await AiRunTokens.find({ tenant_id: tenant.id, run_id: run.id }).sort({ seq: 1 }).lean()
  expect(kept.map(({ seq }) => seq)).toEqual([4, 5, 6, 7, 8, 9])

  const stream = `/api/v1/workflows/${id}/runs/${run.id}/stream`
  expect(await (await makeTenant()).owner.ask('GET', stream)).toMatchObject({ status: 404 })
  await workflows.askCancel(id, run.id)
  await workflows.endOfRun(id, run.id)
  expect(await tell('late')).toMatchObject({ status: 409, body: { code: 'attempt_over' } })
  await (await workflows.undeploy(id)).operation.success()
})
