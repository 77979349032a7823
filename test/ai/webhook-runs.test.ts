import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { newWebhookSecret, webhookHeaders } from '../../lib/standard-webhooks.ts'
import { AiDeployment } from '../../models/ai/deployments.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { AiWebhookRun } from '../../models/ai/webhook-runs.ts'
import { AiWebhook } from '../../models/ai/webhooks.ts'
import { transaction } from '../../models/database.ts'
import { specOf } from '../support/ai/specs.ts'
import { replicas } from '../support/api-clients.ts'
import { type Answer, ask } from '../support/clients/ask.ts'
import { type AiWorkflowBody, aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Webhooks that run AI workflows. But for one, the deployments have no runners: their runs are accepted, and wait.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})

const spec = specOf(
  { say: { kind: 'template', value: 'You said ${input.text}' } },
  {
    models: {},
    budget: { wall_sec: 600 },
    output: '${nodes.say.output}',
    input_schema: {
      type: 'object',
      properties: { text: { type: 'string' } },
      required: ['text'],
      additionalProperties: false,
    },
  },
)

/** A deployed workflow with a secret. */
async function makeDeployed(): Promise<{ id: string; secret: string }> {
  const workflow = await workflows.published(spec)
  await deployRecord(workflow)
  const { body } = await workflows.rotateWebhook(workflow.id)
  return { id: workflow.id, secret: String(body['secret']) }
}

const deployRecord = ({ id, latest_sha256 }: AiWorkflowBody): Promise<unknown> =>
  transaction(() =>
    new AiDeployment({
      tenant_id: tenant.id,
      name: `${id}-1`,
      tags: {},
      status: 'ready',
      workflow_id: id,
      version: 1,
      spec_sha256: latest_sha256,
      cpu_cores: 0.25,
      memory_mib: 256,
    }).save(),
  )

const hello = '{"text": "hello"}'

/** Sends a webhook to one of the API's replicas. */
function send(
  id: string,
  secrets: string[],
  {
    name = newId(),
    body = hello,
    time = new Date(),
    headers = {},
    replica = 0,
  }: {
    name?: string
    body?: string
    time?: Date
    headers?: Record<string, string>
    replica?: number
  } = {},
): Promise<Answer> {
  const signed = webhookHeaders(secrets, { id: name, time, body })
  return ask('POST', `${String(replicas()[replica])}/hooks/workflows/${id}`, {
    headers: { 'content-type': 'application/json', ...signed, ...headers },
    body,
  })
}

const minutes = (count: number): Date => new Date(Date.now() + count * 60_000)
const refused = { status: 401, body: { code: 'signature_invalid' } }
const runsOf = (workflow_id: string) => AiRun.find({ tenant_id: tenant.id, workflow_id }).lean()
const runIdOf = ({ status, body }: Answer): string => {
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`)
  return String(body['run_id'])
}

describe('a webhook', () => {
  test('runs the deployed version, with its body as the input', async () => {
    const { id, secret } = await makeDeployed()
    const run = runIdOf(await send(id, [secret]))
    expect(await runsOf(id)).toMatchObject([
      {
        _id: run,
        version: 1,
        trigger: 'webhook',
        requested_by: null,
        canary_key: null,
        input_json: '{"text":"hello"}',
      },
    ])
  })

  test('of a workflow with a runner has its output', async () => {
    const { id } = await workflows.published(spec)
    await (await workflows.deploy(id)).operation.success()
    const { body } = await workflows.rotateWebhook(id)
    const run = runIdOf(await send(id, [String(body['secret'])]))
    expect(await workflows.endOfRun(id, run)).toMatchObject({
      trigger: 'webhook',
      status: 'succeeded',
      output: 'You said hello',
    })
    await (await workflows.undeploy(id)).operation.success()
  })

  test('that comes again is the same run, also with a new signature and after an undeployment', async () => {
    const { id, secret } = await makeDeployed()
    const name = newId()
    const first = runIdOf(await send(id, [secret], { name }))
    expect(runIdOf(await send(id, [secret], { name }))).toBe(first)
    const later = new Date(Date.now() + 2_000)
    expect(runIdOf(await send(id, [secret], { name, time: later, replica: 1 }))).toBe(first)
    expect(runIdOf(await send(id, [secret]))).not.toBe(first)
    await transaction(() => AiDeployment.deleteOne({ tenant_id: tenant.id, workflow_id: id }))
    expect(runIdOf(await send(id, [secret], { name }))).toBe(first)
    expect(await send(id, [secret])).toMatchObject({ status: 409, body: { code: 'not_deployed' } })
    expect(await runsOf(id)).toHaveLength(2)
  })

  test('that comes many times at once, on two replicas, is one run', async () => {
    const { id, secret } = await makeDeployed()
    const name = newId()
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, at) => send(id, [secret], { name, replica: at % 2 })),
    )
    expect(new Set(answers.map(runIdOf)).size).toBe(1)
    expect(await runsOf(id)).toHaveLength(1)
  })

  test('of the same id is another run for another workflow, and after 24 hours', async () => {
    const [one, other] = [await makeDeployed(), await makeDeployed()]
    const name = newId()
    const first = runIdOf(await send(one.id, [one.secret], { name }))
    expect(runIdOf(await send(other.id, [other.secret], { name }))).not.toBe(first)
    const its = { tenant_id: tenant.id, workflow_id: one.id }
    const { expires_at } = (await AiWebhookRun.findOne(its).lean()) ?? {}
    expect(Math.abs(Number(expires_at) - Date.now() - 86_400_000)).toBeLessThan(3_600_000)
    await AiWebhookRun.updateOne(its, { $set: { expires_at: new Date() } })
    expect(runIdOf(await send(one.id, [one.secret], { name }))).not.toBe(first)
    expect(await runsOf(one.id)).toHaveLength(2)
  })

  test('without a signature of the workflow is refused like one to an unknown workflow', async () => {
    const [{ id, secret }, other] = [await makeDeployed(), await makeDeployed()]
    const silent = await workflows.published(spec)
    const answers = [
      await send(newId(), [secret]),
      await send(silent.id, [secret]),
      await send(id, [newWebhookSecret()]),
      await send(id, [other.secret]),
      await send(id, []),
      await send(id, [secret], { time: minutes(-6) }),
      await send(id, [secret], { time: minutes(6) }),
      await send(id, [secret], { headers: { 'webhook-id': newId() } }),
      await send(id, [secret], {
        headers: { 'webhook-timestamp': String(Math.floor(Date.now() / 1000) - 1) },
      }),
      await send(id, [secret], { body: 'no JSON', headers: { 'webhook-id': 'other' } }),
    ]
    for (const answer of answers) {
      expect(answer).toMatchObject(refused)
      expect({ ...answer.body, request_id: '' }).toEqual({ ...answers[0]?.body, request_id: '' })
    }
    expect(await runsOf(id)).toEqual([])
  })

  test('may be signed by the former secret until the overlap ends', async () => {
    const { id, secret } = await makeDeployed()
    const { body } = await workflows.rotateWebhook(id, { overlap_sec: 3_600 })
    const next = String(body['secret'])
    for (const secrets of [[secret], [next], [newWebhookSecret(), secret]])
      expect(await send(id, secrets)).toMatchObject({ status: 200 })
    await AiWebhook.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { former_until: new Date() } })
    expect(await send(id, [secret])).toMatchObject(refused)
    expect(await send(id, [next])).toMatchObject({ status: 200 })
    await workflows.rotateWebhook(id)
    expect(await send(id, [next])).toMatchObject(refused)
  })

  test.each<[string, string, number, string]>([
    ['is no JSON', '{"text":', 400, 'invalid_json'],
    ['does not fit the input schema', '{"text": 1}', 422, 'invalid_input'],
    ['has another field', '{"text": "a", "more": 1}', 422, 'invalid_input'],
    ['is larger than a run’s input', JSON.stringify({ text: 'x'.repeat(1024 * 1024) }), 413, 'too_large'],
  ])('whose body %s starts nothing, and may come again', async (_, body, status, code) => {
    const { id, secret } = await makeDeployed()
    const name = newId()
    expect(await send(id, [secret], { name, body })).toMatchObject({ status, body: { code } })
    expect(await runsOf(id)).toEqual([])
    expect(await send(id, [secret], { name })).toMatchObject({ status: 200 })
  })

  test('of another media type is refused', async () => {
    const { id, secret } = await makeDeployed()
    expect(await send(id, [secret], { headers: { 'content-type': 'text/plain' } })).toMatchObject({
      status: 415,
    })
  })

  test('to a deleted workflow is refused', async () => {
    const workflow = await workflows.published(spec)
    const { body } = await workflows.rotateWebhook(workflow.id)
    expect(await workflows.delete(workflow.id)).toMatchObject({ status: 204 })
    expect(await send(workflow.id, [String(body['secret'])])).toMatchObject(refused)
  })
})
