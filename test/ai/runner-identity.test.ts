import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type { Connection } from '@temporalio/client'
import { defaultPayloadConverter, type SerializationContext } from '@temporalio/common'
import { importJWK } from 'jose'
import { newId } from '../../lib/ids.ts'
import { queueOf } from '../../lib/parties.ts'
import { type Credential, requestToken } from '../../lib/party-tokens.ts'
import { RunnerKey } from '../../lib/runner-protocol.ts'
import { formatKeyRing, readKeyRing } from '../../lib/seal.ts'
import { partyRing } from '../../lib/payload-codec.ts'
import { platformCodec } from '../../lib/temporal.ts'
import { createRunner, removeRunner, Runner, runnerVars } from '../../models/ai/runners.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { CallingHost, giveTask, openTemporal } from '../support/host-calls.ts'
import { facts, layout, stackSettings } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// What a runner's key opens, and what someone can try who has it.

type Calls = Connection['workflowService']
const settings = stackSettings()
const namespace = settings.KEELSON_TEMPORAL_NAMESPACE
const spec = specOf({ say: { kind: 'template', value: 'hello' } }, { models: {}, output: null })

let temporal: Connection
let tenant: TestTenant
let workflowId: string
let a: CallingHost
let b: CallingHost
let host: CallingHost
let byA: Calls

/** A runner of the tenant's workflow, with the key that its container gets. */
async function newRunner(): Promise<CallingHost> {
  const id = newId()
  await createRunner({ _id: id, tenant_id: tenant.id, workflow_id: workflowId, version: 1 })
  const { KEELSON_RUNNER_KEY: key = '' } = await runnerVars(tenant.id, id)
  return new CallingHost({ kind: 'runner', id }, await importJWK(RunnerKey.parse(JSON.parse(key)), 'EdDSA'))
}

beforeAll(async () => {
  temporal = openTemporal()
  tenant = await makeTenant()
  workflowId = (await aiWorkflowsOf(tenant.owner).published(spec)).id
  ;[a, b, host] = [await newRunner(), await newRunner(), await CallingHost.enrol()]
  byA = await a.at(layout.gatewayPort)
})
afterAll(async () => {
  for (const one of [a, b, host]) await one.close()
  await temporal.close()
})

const poll = (calls: Calls, queue: string) =>
  calls.pollActivityTaskQueue({ namespace, taskQueue: { name: queue } })

/** Asks the internal API with a token for this request, or with another one. */
async function ask(
  by: Credential,
  target: string,
  { method = 'GET', token }: { method?: string; token?: string } = {},
): Promise<{ status: number; body: unknown }> {
  const signed = token ?? (await requestToken(by, { method, target }))
  const answer = await fetch(new URL(target, facts().api_url), {
    method,
    headers: { authorization: `Bearer ${signed}` },
  })
  return { status: answer.status, body: await answer.json() }
}
const part = (id: string, what: string): string => `/internal/v1/runners/${id}/${what}`

test('a runner gets the tasks of its own queue, sealed for it alone', async () => {
  const context = (id: string): SerializationContext => ({ type: 'workflow', namespace, workflowId: id })
  const input = [defaultPayloadConverter.toPayload('work')]
  const id = await giveTask(temporal, a.queue, (one) => platformCodec(settings).encode(input, context(one)))
  const task = await poll(byA, queueOf(a.party))
  expect(task.workflowExecution?.workflowId).toBe(id)
  const sealed = task.input?.payloads ?? []
  const [opened] = await a.codec.decode(sealed, context(id))
  expect(defaultPayloadConverter.fromPayload(opened ?? {})).toBe('work')
  for (const other of [b.codec, host.codec, platformCodec(settings)])
    await expect(other.decode(sealed, context(id))).rejects.toThrow()
  const lie = { namespace, taskToken: task.taskToken }
  for (const other of [b, host])
    await expect(
      (await other.at(layout.gatewayPort)).respondActivityTaskCompleted(lie),
    ).rejects.toMatchObject({ code: 7 })
  await byA.respondActivityTaskCompleted(lie)
})

test('a runner polls no other queue, and asks Temporal for nothing else', async () => {
  for (const queue of [b.queue, host.queue, `host-${a.id}`, 'platform'])
    await expect(poll(byA, queue)).rejects.toMatchObject({ code: 7 })
  for (const call of [
    byA.pollWorkflowTaskQueue({ namespace, taskQueue: { name: a.queue } }),
    byA.startWorkflowExecution({ namespace, workflowId: newId() }),
    byA.signalWorkflowExecution({ namespace, workflowExecution: { workflowId: newId() } }),
    byA.listWorkflowExecutions({ namespace }),
  ])
    await expect(call).rejects.toMatchObject({ code: 7 })
  const asHost = new CallingHost({ kind: 'host', id: a.id }, a.key)
  await expect((await asHost.at(layout.gatewayPort)).getSystemInfo({})).rejects.toMatchObject({ code: 16 })
  await asHost.close()
})

describe('the internal API gives a runner', () => {
  test('the version that it carries out, and the keys of its own payloads', async () => {
    expect(await ask(a, part(a.id, 'spec'))).toMatchObject({
      status: 200,
      body: { workflow_id: workflowId, version: 1, spec, plan: { nodes: { say: {} } } },
    })
    const ring = partyRing(readKeyRing(settings.KEELSON_CODEC_KEY_FILE), a.party)
    expect(await ask(a, part(a.id, 'codec-keys'))).toEqual({
      status: 200,
      body: { keys: formatKeyRing(ring) },
    })
  })

  test('nothing of another runner, nothing of hosts, and nothing that a login opens', async () => {
    for (const what of ['spec', 'codec-keys'])
      for (const id of [b.id, newId(), host.id]) expect((await ask(a, part(id, what))).status).toBe(404)
    for (const target of [
      `/internal/v1/hosts/${a.id}/codec-keys`,
      `/internal/v1/hosts/${host.id}/codec-keys`,
      `/internal/v1/hosts/${host.id}/instances/${newId()}/config-vars`,
      '/api/v1/workflows',
      `/api/v1/workflows/${workflowId}`,
    ])
      expect([target, (await ask(a, target)).status]).toEqual([target, 401])
  })

  test('nothing for a token of another request, one that was used, or one that others signed', async () => {
    const target = part(a.id, 'spec')
    const token = await requestToken(a, { method: 'GET', target })
    expect((await ask(a, part(a.id, 'codec-keys'), { token })).status).toBe(401)
    expect((await ask(a, target, { token })).status).toBe(200)
    expect((await ask(a, target, { token })).status).toBe(401)
    for (const by of [
      { party: a.party, key: b.key },
      { party: { kind: 'host' as const, id: a.id }, key: a.key },
      host,
    ])
      expect((await ask(by, target)).status).toBe(401)
    expect((await ask(a, target, { token: tenant.owner.token })).status).toBe(401)
  })
})

test('a runner that is removed is refused at its next poll and its next request', async () => {
  const gone = await newRunner()
  await expect((await gone.at(layout.gatewayPort)).getSystemInfo({})).resolves.toBeDefined()
  expect((await ask(gone, part(gone.id, 'spec'))).status).toBe(200)
  await removeRunner(tenant.id, gone.id)
  const again = await gone.at(layout.gatewayPort)
  await expect(poll(again, gone.queue)).rejects.toMatchObject({ code: 16 })
  await expect(again.getSystemInfo({})).rejects.toMatchObject({ code: 16 })
  expect((await ask(gone, part(gone.id, 'spec'))).status).toBe(401)
  await gone.close()
})

test('a runner’s key is stored sealed, for that runner', async () => {
  const { KEELSON_RUNNER_ID: id, KEELSON_RUNNER_KEY: key = '' } = await runnerVars(tenant.id, a.id)
  expect(id).toBe(a.id)
  const stored = await Runner.findOne({ tenant_id: tenant.id, _id: a.id }).lean()
  expect(JSON.stringify(stored)).not.toContain(RunnerKey.parse(JSON.parse(key)).d)
  const other = await Runner.findOne({ tenant_id: tenant.id, _id: b.id }).lean()
  await Runner.updateOne({ tenant_id: tenant.id, _id: b.id }, { $set: { key_sealed: stored?.key_sealed } })
  await expect(runnerVars(tenant.id, b.id)).rejects.toThrow()
  await Runner.updateOne({ tenant_id: tenant.id, _id: b.id }, { $set: { key_sealed: other?.key_sealed } })
  expect(await runnerVars(newId(), a.id)).toEqual({})
})
