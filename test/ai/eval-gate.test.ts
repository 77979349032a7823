import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { AiRun } from '../../models/ai/runs.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf, type EvalResultBody } from '../support/clients/ai-workflows.ts'
import { eventually } from '../support/eventually.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// A canary on its way to the primary, through the gate of its evals, as a user goes it.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})
afterAll(removeTenants)

/** Says so before the text of its input, and first asks somebody if that says so. */
const saying = (greeting: string): object =>
  specOf(
    { ask: { kind: 'approve', when: "input.text == 'ask'", message: 'Now?', deadline_sec: 3_600 } },
    { models: {}, budget: { wall_sec: 3_600 }, output: `${greeting} \${input.text}` },
  )
const greetings = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']

test('a canary is promoted once its evals have passed on it, and a publication meanwhile closes the gate', async () => {
  const { id } = await workflows.published(saying('Bye'))
  await workflows.change(id, { spec: saying('Hello') })
  await workflows.publish(id)
  await (await workflows.deploy(id, { version: 1 })).operation.success()
  await workflows.setEvalGate(id, true)
  for (const name of greetings) {
    const assertion = { kind: 'contains', text: `Hello ${name}` }
    expect(await workflows.putEval(id, { name, input: { text: name }, assertion })).toMatchObject({
      status: 201,
    })
  }
  const both = { name: 'both', input: { text: 'ask' }, assertion: { kind: 'contains', text: 'ask' } }
  await workflows.putEval(id, both)

  const openRun = async () =>
    (await AiRun.findOne({ tenant_id: tenant.id, workflow_id: id, open: true }).lean())?._id
  /** Runs all cases there. One of them waits for a person, when all others have ended. */
  const ran = async (target: 'primary' | 'canary'): Promise<EvalResultBody> => {
    const { id: eval_id, operation } = await workflows.runEvals(id, { target })
    const step = `${greetings.length} of ${greetings.length + 1} runs, which took 0 tokens and 0.0000 USD`
    await eventually(async () => (await operation.now()).step === step)
    const run = String(await openRun())
    await eventually(
      async () => (await workflows.askDecision(id, run, 'ask', { approved: true })).status === 200,
    )
    await operation.success()
    const [result] = (await workflows.evalResults(id, '?limit=1')).items
    expect(result).toMatchObject({ id: eval_id, role: target })
    return result as EvalResultBody
  }
  const refusal = async () => {
    const { status, body } = await workflows.askPromote(id)
    return [status, body['code'], body['lack']]
  }

  const before = await ran('primary')
  expect(before).toMatchObject({ version: 1, verdict: 'failed', passed: 1, failed: 8, errors: 0 })
  await (await workflows.canary(id, { version: 2, weight: 0 })).operation.success()
  expect(await refusal()).toEqual([409, 'evals_not_passed', 'not_run'])

  const passed = await ran('canary')
  const canary = (await workflows.get(id)).canary
  expect(passed).toMatchObject({
    deployment_id: canary?.id,
    version: 2,
    verdict: 'passed',
    passed: 9,
    compared: { eval_id: before.id, version: 1, better: 8, worse: 0, same: 1, verdict: 'better' },
  })
  // Wilson's interval of 9 of 9.
  const { low, high } = passed['pass_rate'] as { low: number; high: number }
  expect([low, high]).toEqual([expect.closeTo(0.70085, 4), 1])

  await workflows.change(id, { spec: saying('Good day') })
  await workflows.publish(id)
  expect(await refusal()).toEqual([409, 'evals_not_passed', 'published_since'])
  expect(await ran('canary')).toMatchObject({ version: 2, verdict: 'passed' })
  await workflows.putEval(id, { ...both, repeats: 2 })
  expect(await refusal()).toEqual([409, 'evals_not_passed', 'cases_changed'])
  await workflows.putEval(id, both)

  const { id: promoted, operation } = await workflows.promote(id)
  expect(promoted).toBe(canary?.id)
  await operation.success()
  const { deployment, canary: none } = await workflows.get(id)
  expect([deployment?.id, deployment?.version, none]).toEqual([canary?.id, 2, null])
  expect(await workflows.run(id, { text: 'you' }, '?wait=60')).toMatchObject({ output: 'Hello you' })
  await (await workflows.undeploy(id)).operation.success()
})
