import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { AiDeployment } from '../../models/ai/deployments.ts'
import { needEvalPass } from '../../models/ai/eval-gate.ts'
import { AiEvalAttempt, AiEvalCases } from '../../models/ai/evals.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { AiWorkflow, aiWorkflowOf } from '../../models/ai/ai-workflows.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { insertDeployment } from '../support/ai/inserted-runs.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf, type EvalResultBody } from '../support/clients/ai-workflows.ts'
import type { Json } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { said } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider, type Treatment } from '../support/model-provider/server.ts'
import { platform, startAll } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { modelProviderPorts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs of eval cases on a deployed workflow, with judges that a test scripts, and the gate that reads their results.

const never = Promise.withResolvers<void>()
let held = Promise.withResolvers<void>()
const passes = '{"reasons": "It greets.", "verdict": "pass"}'
const waits = () => ({ waits: { after: 0, for: held.promise } })
const treatments: Record<string, (count: number) => Treatment> = {
  kind: () => ({ says: passes }),
  strict: () => ({ says: '{"reasons": "It is rude.", "verdict": "fail"}' }),
  hasty: (count) => ({ says: count === 1 ? '{"verdict": "fail", "reasons": "So."}' : passes }),
  down: () => ({ status: 400 }),
  slow: () => ({ waits: { after: 0, for: never.promise } }),
  held: waits,
  patient: () => ({ ...waits(), says: passes }),
}
const models = ['kind', 'strict', 'hasty', 'down', 'slow', 'held', 'patient']
/** Answers with its text, and first asks the model that the input names. */
const asking = (model: string) => ({
  kind: 'llm',
  model,
  when: `input.text == '${model}'`,
  messages: [{ role: 'user', content: 'Greet' }],
})

let provider: ModelProvider
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let connector: string
let spec: object
let id: string
beforeAll(async () => {
  provider = await startModelProvider(
    (model, count) => treatments[model]?.(count) ?? {},
    modelProviderPorts.evals,
  )
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  connector = await insertConnector(tenant.id, 'openai_compatible', provider.base_url)
  const parameters = { max_tokens: 100 }
  spec = specOf(
    { slow: asking('slow'), held: asking('held') },
    {
      models: Object.fromEntries(models.map((model) => [model, { connector, model, parameters }])),
      output: { says: '${input.text}' },
    },
  )
  id = (await workflows.published(spec)).id
  await (await workflows.deploy(id)).operation.success()
})
afterEach(startAll)
afterAll(async () => {
  held.resolve()
  never.resolve()
  await removeTenants()
  await provider.close()
})

const contains = (text: string) => ({ kind: 'contains', text })
const judge = (model: unknown) => ({ kind: 'judge', rubric: 'It greets', model })

/** Makes these the workflow's cases: texts that are given and what must come of them. */
async function setCases(cases: Record<string, [text: unknown, assertion: Json, more?: Json]>): Promise<void> {
  for (const { id: former } of await workflows.evals(id)) await workflows.deleteEval(id, former)
  for (const [name, [text, assertion, more]] of Object.entries(cases)) {
    const { status, body } = await workflows.putEval(id, { name, input: { text }, assertion, ...more })
    if (status !== 201) throw new Error(`${status} ${JSON.stringify(body)}`)
  }
}

async function ran(): Promise<EvalResultBody> {
  const { id: eval_id, operation } = await workflows.runEvals(id)
  await operation.success()
  const [result] = (await workflows.evalResults(id, '?limit=1')).items
  expect(result?.id).toBe(eval_id)
  return result as EvalResultBody
}

const runsOf = (eval_id: string) => AiRun.find({ tenant_id: tenant.id, 'eval.eval_id': eval_id }).lean()
const byName = ({ cases }: EvalResultBody) => Object.fromEntries(cases.map((one) => [one.name, one]))

/** What the gate says of the workflow's deployment; null: it is open. */
async function gate(more: object = {}): Promise<string | null> {
  const deployment = await AiDeployment.findOne({ tenant_id: tenant.id, workflow_id: id }).lean()
  if (!deployment) throw new Error('it is not deployed')
  const refusal = await needEvalPass(await aiWorkflowOf({ tenant_id: tenant.id }, id), {
    ...deployment,
    ...more,
  }).catch((error: unknown) => error)
  if (refusal === undefined) return null
  expect(refusal).toMatchObject({ status: 409, code: 'evals_not_passed' })
  return String((refusal as { extensions: Json }).extensions['lack'])
}

test('each case is run as often as it says, and judged by its text, its value or a model', async () => {
  await setCases({
    text: ['Good day', contains('day'), { repeats: 3, min_pass: 2 }],
    value: ['Good day', { kind: 'equals', value: { says: 'Bye' } }],
    kind: ['Hello', judge('kind')],
    strict: ['Hello', judge({ connector, model: 'strict' })],
    hasty: ['Hello', judge('hasty')],
    refused: [7, contains('7')],
    unknown: ['Hello', judge('nobody')],
  })
  const result = await ran()
  expect(result).toMatchObject({
    verdict: 'failed',
    role: 'primary',
    version: 1,
    passed: 3,
    failed: 3,
    errors: 1,
    compared: null,
    case_set_sha256: (await workflows.get(id)).case_set_sha256,
  })
  const cases = byName(result)
  expect(cases).toMatchObject({
    text: { verdict: 'passed', passes: 3 },
    value: { verdict: 'failed', fails: 1 },
    kind: { verdict: 'passed', attempts: [{ outcome: 'pass', reasons: 'It greets.', error: null }] },
    strict: { verdict: 'failed', attempts: [{ outcome: 'fail', reasons: 'It is rude.' }] },
    hasty: { verdict: 'passed', attempts: [{ outcome: 'pass', reasons: 'It greets.' }] },
    refused: { verdict: 'failed', attempts: [{ run_id: null, error: { code: 'invalid_input' } }] },
    unknown: { verdict: 'error', attempts: [{ outcome: 'error', error: { code: 'model_unknown' } }] },
  })
  expect(provider.askedFor('hasty')).toHaveLength(2)
  const [asked] = provider.askedFor('kind')
  const [, message] = (asked?.body['messages'] ?? []) as { content: string }[]
  expect(JSON.parse(message?.content ?? '')).toEqual({
    rubric: 'It greets',
    input: { text: 'Hello' },
    output: { says: 'Hello' },
  })

  const { items: listed } = await workflows.runs(id)
  expect(listed).toHaveLength(8)
  expect(listed.filter(({ trigger }) => trigger !== 'eval')).toEqual([])
  const ofText = cases['text']?.attempts.map(({ run_id }) => run_id)
  expect(new Set(ofText).size).toBe(3)
  expect(await workflows.getRun(id, String(ofText?.[1]))).toMatchObject({
    status: 'succeeded',
    eval: { eval_id: result.id, repeat: 2 },
  })
  const taken = said.usage.input + said.usage.output
  expect(result.tokens).toBe(4 * taken)
  const query = `group_by=purpose&purpose_kind=eval&purpose_id=${result.id}`
  const { usage } = await tenant.owner.get<{ usage: Json[] }>(`/api/v1/llm-usage?${query}`)
  expect(usage).toMatchObject([{ purpose_kind: 'eval', purpose_id: result.id, calls: 4 }])
  for (const model of [AiEvalAttempt, AiEvalCases])
    expect(await model.collection.countDocuments({ tenant_id: tenant.id })).toBe(0)
})

test('the gate opens after a pass of the same deployment and cases, and a judge that is down keeps it closed', async () => {
  expect(await gate()).toBeNull()
  await workflows.setEvalGate(id, true)
  await setCases({ text: ['Good day', contains('day')], judged: ['Hello', judge('down')] })
  expect(['not_run', 'cases_changed']).toContain(await gate())
  const down = await ran()
  expect(down).toMatchObject({ verdict: 'inconclusive', passed: 1, failed: 0, errors: 1 })
  expect(byName(down)['judged']).toMatchObject({ errors: 1, attempts: [{ outcome: 'error', reasons: null }] })
  expect(await gate()).toBe('inconclusive')

  const good = { text: ['Good day', contains('day')], judged: ['Hello', judge('kind')] } as const
  await setCases({ text: [...good.text], judged: [...good.judged] })
  const first = await ran()
  expect([first.verdict, first['compared']]).toEqual(['passed', null])
  expect(await gate()).toBeNull()
  expect(await gate({ _id: newId() })).toBe('not_run')
  expect(await gate({ spec_sha256: 'other' })).toBe('not_run')
  await setCases({ text: [...good.text] })
  expect(await gate()).toBe('cases_changed')
  await setCases({ text: [...good.text], judged: [...good.judged] })
  expect(await gate()).toBeNull()

  await workflows.change(id, { spec: { ...spec, output: { says: 'nothing' } } })
  expect(await workflows.publish(id)).toMatchObject({ status: 201 })
  expect(await gate()).toBe('published_since')
  const again = await ran()
  expect(again).toMatchObject({
    verdict: 'passed',
    version: 1,
    compared: { eval_id: first.id, same: 2, better: 0, worse: 0, verdict: 'undecided' },
  })
  expect(await gate()).toBeNull()

  const page = await workflows.evalResults(id, '?limit=2')
  expect(page.items.map((one) => one.id)).toEqual([again.id, first.id])
  const next = await workflows.evalResults(id, `?limit=1&before=${page.next}`)
  expect(next.items).toEqual([down])
})

test('a run of eval cases that is cancelled leaves no run and no result', async () => {
  await setCases({ slow: ['slow', contains('slow'), { repeats: 20 }] })
  const before = (await workflows.evalResults(id)).items.length
  const { id: eval_id, operation } = await workflows.runEvals(id)
  await eventually(() => provider.askedFor('slow').length === 8)
  expect(await workflows.askRunEvals(id)).toMatchObject({
    status: 409,
    body: { code: 'operation_in_progress', operation_id: operation.id },
  })
  await operation.cancel()
  expect(await operation.end()).toMatchObject({ state: 'cancelled' })
  const runs = await runsOf(eval_id)
  expect(runs.map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => 'cancelled'))
  expect((await AiWorkflow.findOne({ _id: id, tenant_id: tenant.id }).lean())?.runs_open).toBe(0)
  expect((await workflows.evalResults(id)).items).toHaveLength(before)
})

const kills = [
  { role: 'worker', at: 'a judge', text: 'Hello', model: 'patient' },
  { role: 'worker', at: 'a run', text: 'held', model: 'kind' },
  { role: 'temporal', at: 'a judge', text: 'Hello', model: 'patient' },
  { role: 'mongodb', at: 'a judge', text: 'Hello', model: 'patient' },
] as const

test.each(sampled(kills, 1))(
  'eval cases run once, and a judge is paid once, if $role is killed while $at works',
  async ({ role, text, model }) => {
    held = Promise.withResolvers<void>()
    await setCases({
      waits: [text, judge(model)],
      text: ['Good day', contains('day'), { repeats: 10 }],
    })
    const waiting = text === 'held' ? 'held' : model
    const [waited, judged] = [waiting, model].map((one) => provider.askedFor(one).length)
    const { id: eval_id, operation } = await workflows.runEvals(id)
    await eventually(() => provider.askedFor(waiting).length > (waited ?? 0))
    await platform.restartKilled(role)
    held.resolve()
    await operation.success()
    const [result] = (await workflows.evalResults(id, '?limit=1')).items
    expect(result).toMatchObject({ id: eval_id, verdict: 'passed' })
    expect(byName(result as EvalResultBody)).toMatchObject({ waits: { passes: 1 }, text: { passes: 10 } })
    expect(await runsOf(eval_id)).toHaveLength(11)
    expect(provider.askedFor(waiting).length - (waited ?? 0)).toBe(1)
    expect(provider.askedFor(model).length - (judged ?? 0)).toBe(1)
    const calls = await LlmCall.find({ tenant_id: tenant.id, purpose_id: eval_id }).lean()
    expect(calls.filter(({ code }) => code !== 'kept')).toHaveLength(1)
  },
)

test('an undeployment ends the eval cases that run, and nothing keeps the workflow', async () => {
  await setCases({ slow: ['slow', contains('slow'), { repeats: 3 }] })
  const { id: eval_id, operation } = await workflows.runEvals(id)
  await eventually(async () => (await runsOf(eval_id)).length === 3)
  await (await workflows.undeploy(id)).operation.success()
  expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'undeployed' } })
  expect((await runsOf(eval_id)).filter(({ open }) => open)).toEqual([])
  expect(await workflows.askRunEvals(id)).toMatchObject({ status: 409, body: { code: 'not_deployed' } })
  expect(await workflows.delete(id)).toMatchObject({ status: 204 })
})

test('eval cases that cannot run are refused, and another tenant sees none', async () => {
  const { id: bare } = await workflows.published(
    specOf({ say: { kind: 'template', value: 1 } }, { models: {} }),
  )
  await insertDeployment(tenant.id, bare)
  const refusalOf = async (body?: Json) => (await workflows.askRunEvals(bare, body)).body['code']
  expect(await refusalOf()).toBe('no_eval_cases')
  const hello = { input: {}, assertion: contains('hello') }
  await workflows.putEval(bare, { ...hello, name: 'hello' })
  expect(await refusalOf({ target: 'canary' })).toBe('no_canary')
  for (let at = 0; at < 50; at++) await workflows.putEval(bare, { ...hello, name: `case-${at}`, repeats: 20 })
  expect(await refusalOf()).toBe('too_many_runs')
  const stranger = aiWorkflowsOf((await makeTenant()).owner)
  expect(await stranger.askRunEvals(bare)).toMatchObject({ status: 404 })
  await expect(stranger.evalResults(bare)).rejects.toThrow('404')
  const reader = aiWorkflowsOf(await tenant.user('viewer'))
  expect(await reader.askRunEvals(bare)).toMatchObject({ status: 403 })
  expect((await reader.evalResults(bare)).items).toEqual([])
})
