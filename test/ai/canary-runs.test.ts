import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { bucketOf, takes } from '../../lib/ai/canary.ts'
import { newId } from '../../lib/ids.ts'
import { lookAtCanary } from '../../models/ai/canary-looks.ts'
import { AiDeployment } from '../../models/ai/deployments.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { Ledger } from '../../models/llm/ledgers.ts'
import { insertCanary, insertDeployment } from '../support/ai/inserted-runs.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf, type RunBody } from '../support/clients/ai-workflows.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { mistakeAt } from '../support/refusals.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Which deployment takes a run, what sends a canary's runs back, and how a canary becomes the primary.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})
afterAll(removeTenants)

const plain = { models: {}, budget: { wall_sec: 600 }, output: '${nodes.say.output}' }
const saying = (value: string, more: object = {}): object =>
  specOf({ say: { kind: 'template', value } }, { ...plain, ...more })

/** A workflow with two versions. */
async function published(second: object = saying('two')): Promise<string> {
  const { id } = await workflows.published(saying('one'))
  await workflows.change(id, { spec: second })
  await workflows.publish(id)
  return id
}

/** Deployments without runners: their runs stay open. */
async function inserted(weight: number, second?: object) {
  const id = await published(second)
  const primary = await insertDeployment(tenant.id, id, 1)
  const canary = await insertCanary(tenant.id, id, 2, weight)
  return { id, primary: primary._id, canary: canary._id }
}

const run = async (id: string, canary_key: string, input: object = { text: 'x' }): Promise<RunBody> => {
  const { status, body } = await workflows.askRun(id, { input, canary_key })
  expect([status, body]).toMatchObject([201, {}])
  return body as RunBody
}
const undeploy = async (id: string): Promise<void> => {
  await (await workflows.undeploy(id)).operation.success()
}

/** An open run of the primary. The canary takes all others. */
async function runOfPrimary(id: string, primary: string): Promise<string> {
  await workflows.askCanary(id, { weight: 0 })
  const { id: runId, deployment_id } = await run(id, 'a')
  expect(deployment_id).toBe(primary)
  await workflows.askCanary(id, { weight: 100 })
  return runId
}

const canaryOf = async (id: string) => (await workflows.get(id)).canary

describe('a run', () => {
  const keys = Array.from({ length: 20 }, (_, at) => `customer-${at}`)

  test('goes where the bucket of its key says, and another weight moves only those between', async () => {
    const { id, primary, canary } = await inserted(30)
    const deploymentsOf = async () =>
      Object.fromEntries(
        await Promise.all(keys.map(async (key) => [key, (await run(id, key)).deployment_id] as const)),
      )
    const expected = (weight: number) =>
      Object.fromEntries(keys.map((key) => [key, takes(weight, bucketOf(id, key)) ? canary : primary]))

    expect(await deploymentsOf()).toEqual(expected(30))
    expect(await workflows.askCanary(id, { weight: 60 })).toMatchObject({
      status: 200,
      body: { id: canary, version: 2, weight: 60 },
    })
    expect(await deploymentsOf()).toEqual(expected(60))
    expect(await workflows.askCanary(id, { weight: 0 })).toMatchObject({ status: 200 })
    expect(await deploymentsOf()).toEqual(expected(0))
    await undeploy(id)
    expect(await workflows.get(id)).toMatchObject({ deployment: null, canary: null, former_deployments: [] })
  })

  test('whose input does not fit the canary’s version goes to the primary', async () => {
    const input_schema = {
      type: 'object',
      properties: { text: { type: 'string' }, count: { type: 'integer' } },
      required: ['count'],
    }
    const { id, primary, canary } = await inserted(100, saying('two', { input_schema }))
    expect(await run(id, 'a', { text: 'x' })).toMatchObject({ deployment_id: primary, version: 1 })
    expect(await run(id, 'a', { text: 'x', count: 1 })).toMatchObject({ deployment_id: canary, version: 2 })
    expect(await workflows.askRun(id, { input: {} })).toMatchObject(mistakeAt('/input'))
    await undeploy(id)
  })

  test('fails when its canary is stopped, and others go to the primary', async () => {
    const { id, primary, canary } = await inserted(100)
    const [its, others] = [await run(id, 'a'), await runOfPrimary(id, primary)]
    const { operation } = await workflows.stopCanary(id)
    expect(await run(id, 'a')).toMatchObject({ deployment_id: primary })
    expect(await workflows.endOfRun(id, its.id)).toMatchObject({
      status: 'failed',
      error: { code: 'canary_stopped', node: null },
    })
    await operation.success()
    expect(await AiDeployment.exists({ _id: canary, tenant_id: tenant.id })).toBeNull()
    expect((await workflows.getRun(id, others)).ended_at).toBeNull()
    expect(await workflows.get(id)).toMatchObject({ canary: null, deployment: { id: primary } })
    await undeploy(id)
  })
})

describe('a promotion', () => {
  test('refuses no run, and the former primary ends with its open runs', async () => {
    const { id, primary, canary } = await inserted(10)
    const before = await runOfPrimary(id, primary)
    await workflows.askCanary(id, { weight: 10 })
    const promotion = new AbortController()
    const promote = async () => {
      const accepted = await workflows.promote(id)
      promotion.abort()
      return accepted
    }
    const ask = async () => {
      for (let at = 0; !promotion.signal.aborted || at < 10; at++) await run(id, `key-${at}`)
    }
    const [{ id: promoted, operation }] = await Promise.all([promote(), ask()])
    expect(promoted).toBe(canary)
    const after = await run(id, 'a')
    expect(after).toMatchObject({ deployment_id: canary, version: 2 })
    expect(await workflows.get(id)).toMatchObject({
      deployment: { id: canary, role: 'primary', status: 'ready' },
      canary: null,
      former_deployments: [{ id: primary, role: 'former', status: 'draining' }],
    })
    // It is kept for as long as a run of it is open, and no longer.
    await eventually(async () => (await operation.now()).step?.startsWith('waiting'))
    const open = await AiRun.find(
      { tenant_id: tenant.id, deployment_id: primary, open: true },
      { _id: 1 },
    ).lean()
    expect(open.length).toBeGreaterThan(0)
    for (const { _id } of open) await workflows.askCancel(id, _id)
    await operation.success()
    expect((await workflows.get(id)).former_deployments).toEqual([])
    for (const one of [before, after.id]) {
      const { deployment_id, ended_at } = await workflows.getRun(id, one)
      expect(ended_at === null).toBe(deployment_id === canary)
    }
    await undeploy(id)
  })

  test('does not keep an undeployment waiting', async () => {
    const { id } = await inserted(0)
    const { id: open } = await run(id, 'a')
    const { operation } = await workflows.promote(id)
    await undeploy(id)
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    expect(await workflows.getRun(id, open)).toMatchObject({
      status: 'failed',
      error: { code: 'undeployed' },
    })
    expect(await AiDeployment.countDocuments({ tenant_id: tenant.id, workflow_id: id })).toBe(0)
  })

  test('is refused without passing evals, if the workflow needs them', async () => {
    const { id, primary } = await inserted(10)
    await workflows.setEvalGate(id, true)
    expect(await workflows.askPromote(id)).toMatchObject({ status: 409, body: { code: 'evals_not_passed' } })
    expect((await workflows.get(id)).deployment?.id).toBe(primary)
    await undeploy(id)
  })
})

describe('a canary is refused', () => {
  test('without a primary, as a second one, and its promotion before it is ready', async () => {
    const id = await published()
    expect(await workflows.askCanary(id, { weight: 1 })).toMatchObject({
      status: 409,
      body: { code: 'not_deployed' },
    })
    await insertDeployment(tenant.id, id, 1)
    for (const ask of [workflows.askStopCanary, workflows.askPromote])
      expect(await ask(id)).toMatchObject({ status: 404 })
    expect(await workflows.askCanary(id, { weight: 1, version: 3 })).toMatchObject({ status: 404 })
    expect(await workflows.askCanary(id, { weight: 101 })).toMatchObject(mistakeAt('/weight'))
    const { _id } = await insertCanary(tenant.id, id, 2, 10)
    expect(await workflows.askCanary(id, { weight: 1, version: 1 })).toMatchObject({
      status: 409,
      body: { code: 'canary_exists', version: 2 },
    })
    await AiDeployment.updateOne({ _id, tenant_id: tenant.id }, { $set: { status: 'error' } })
    expect(await workflows.askPromote(id)).toMatchObject({ status: 409, body: { code: 'canary_not_ready' } })
    expect(await workflows.askCanary(id, { weight: 1 })).toMatchObject({ status: 409 })
    expect((await run(id, 'a')).version).toBe(1)
    expect(await workflows.delete(id)).toMatchObject({ status: 409 })
    await undeploy(id)
  })

  test('to another tenant, and to who may not publish', async () => {
    const { id, canary } = await inserted(10)
    const stranger = aiWorkflowsOf((await makeTenant()).owner)
    const viewer = aiWorkflowsOf(await tenant.user('viewer'))
    for (const [client, status] of [
      [stranger, 404],
      [viewer, 403],
    ] as const) {
      expect(await client.askCanary(id, { weight: 1 })).toMatchObject({ status })
      expect(await client.askStopCanary(id)).toMatchObject({ status })
      expect(await client.askPromote(id)).toMatchObject({ status })
    }
    expect((await workflows.get(id)).canary).toMatchObject({ id: canary, weight: 10 })
    await undeploy(id)
  })
})

describe('the policy', () => {
  interface Ended {
    count: number
    ms: number
    agoMs?: number
    failed?: boolean
    nano_usd?: number
  }

  /** Runs that have ended. */
  async function insertEnded(workflow_id: string, deployment_id: string, its: Ended): Promise<void> {
    const { count, ms, agoMs = 0, failed = false, nano_usd } = its
    for (let at = 0; at < count; at++) {
      const [_id, ended_at] = [newId(), new Date(Date.now() - agoMs)]
      await new AiRun({
        _id,
        tenant_id: tenant.id,
        workflow_id,
        deployment_id,
        version: 1,
        spec_sha256: '0',
        trigger: 'manual',
        bucket: 0,
        status: failed ? 'failed' : 'succeeded',
        input_json: '{}',
        started_at: new Date(ended_at.getTime() - ms),
        ended_at,
      }).save()
      if (nano_usd === undefined) continue
      const taken = { tokens: 10, cost_nano_usd: nano_usd, open: {}, created_at: ended_at }
      await new Ledger({ _id: `${tenant.id}:run:${_id}`, tenant_id: tenant.id, ...taken }).save()
    }
  }
  test('counts what ended in 10 minutes and since the last change, sends back once, and a change begins anew', async () => {
    const { id, primary, canary } = await inserted(50)
    const its = { _id: canary, tenant_id: tenant.id }
    const since = (agoMs: number) =>
      AiDeployment.updateOne(its, { $set: { 'canary.since': new Date(Date.now() - agoMs) } })
    await since(3_600_000)
    await insertEnded(id, primary, { count: 20, ms: 1_000 })
    await insertEnded(id, canary, { count: 19, ms: 1_000 })
    // Neither what ended earlier nor what was slow without a bound counts.
    await insertEnded(id, canary, { count: 4, ms: 1_000, failed: true, agoMs: 1_200_000 })
    expect((await canaryOf(id))?.decision).toMatchObject({
      verdict: 'hold',
      reason: 'too_few_runs',
      at: null,
    })
    await insertEnded(id, canary, { count: 3, ms: 5_000 })
    expect((await canaryOf(id))?.decision).toMatchObject({ verdict: 'hold', reason: 'within_bounds' })

    const bounds = { p95_ratio: 2, cost_ratio: null }
    expect((await workflows.askCanary(id, { weight: 50, bounds })).body).toMatchObject({
      bounds,
      decision: null,
    })
    await lookAtCanary(tenant.id, canary)
    expect(await canaryOf(id)).toMatchObject({ weight: 50, decision: { reason: 'too_few_runs' } })
    await since(3_600_000)
    await lookAtCanary(tenant.id, primary) // not a run of the canary
    expect((await canaryOf(id))?.weight).toBe(50)
    await lookAtCanary(tenant.id, canary)
    const back = await canaryOf(id)
    expect(back).toMatchObject({ weight: 0, decision: { verdict: 'back', reason: 'p95' } })
    expect(back?.decision?.at).not.toBeNull()
    await lookAtCanary(tenant.id, canary)
    expect(await canaryOf(id)).toEqual(back)

    expect((await workflows.askCanary(id, { weight: 20 })).body).toMatchObject({
      weight: 20,
      bounds,
      decision: null,
    })
    expect(await canaryOf(id)).toMatchObject({ weight: 20, decision: { reason: 'too_few_runs' } })
    await undeploy(id)
  })

  test('compares what runs cost, if all have a price, and metrics say what they took', async () => {
    const { id, primary, canary } = await inserted(50)
    await workflows.askCanary(id, { weight: 50, bounds: { cost_ratio: 2 } })
    await insertEnded(id, primary, { count: 20, ms: 1, nano_usd: 100 })
    await insertEnded(id, canary, { count: 20, ms: 1, nano_usd: 300 })
    await insertEnded(id, canary, { count: 1, ms: 1, nano_usd: 0 })
    expect((await canaryOf(id))?.decision).toMatchObject({ verdict: 'hold', reason: 'within_bounds' })
    await Ledger.updateMany({ tenant_id: tenant.id, cost_nano_usd: 0 }, { $set: { cost_nano_usd: 300 } })
    expect((await canaryOf(id))?.decision).toMatchObject({ verdict: 'back', reason: 'cost' })

    // The same records as metrics, with 10 tokens each.
    await insertEnded(id, canary, { count: 2, ms: 9_000, failed: true })
    await insertEnded(id, canary, { count: 1, ms: 9_000, agoMs: 7_200_000 })
    const ofCanary = { runs: 23, succeeded: 21, failed: 2, cancelled: 0, p50_ms: 1, p95_ms: 9_000 }
    const metrics = await workflows.metrics(id)
    expect(metrics).toMatchObject({ is_complete: true, runs: 43, failed: 2, p50_ms: 1, tokens: 410 })
    expect(metrics['cost_nano_usd']).toBe(20 * 100 + 21 * 300)
    expect(metrics['deployments']).toContainEqual({
      deployment_id: canary,
      version: 1,
      ...ofCanary,
      tokens: 210,
      cost_nano_usd: 21 * 300,
    })
    expect(await workflows.metrics(id, '?window_sec=86400')).toMatchObject({ runs: 44 })
    await undeploy(id)
  })
})

test('a canary with a runner takes runs, goes back after five failures, and is promoted', async () => {
  const id = await published(saying('two: ${input.tags[0]}'))
  const deployed = await workflows.deploy(id, { version: 1 })
  await deployed.operation.success()
  const begun = await workflows.canary(id, { version: 2, weight: 100 })
  await begun.operation.success()
  expect((await workflows.get(id)).canary).toMatchObject({ status: 'ready', weight: 100, cpu_cores: 0.25 })
  const ended = (tags: string[]) => workflows.run(id, { text: 'x', tags }, '?wait=60')
  expect(await ended(['a'])).toMatchObject({ version: 2, status: 'succeeded', output: 'two: a' })
  for (let at = 0; at < 5; at++) expect(await ended([])).toMatchObject({ version: 2, status: 'failed' })
  await eventually(async () => (await workflows.get(id)).canary?.weight === 0)
  expect((await workflows.get(id)).canary?.decision).toMatchObject({
    verdict: 'back',
    reason: 'failures_in_a_row',
  })
  expect(await ended([])).toMatchObject({ version: 1, status: 'succeeded', output: 'one' })

  const { operation } = await workflows.promote(id)
  const first = await ended(['b'])
  expect(first).toMatchObject({ version: 2, status: 'succeeded', output: 'two: b' })
  await operation.success()
  expect(await engine.withLabel('keelson.tenant', tenant.id)).toHaveLength(1)
  expect(await ended(['c'])).toMatchObject({ version: 2, status: 'succeeded' })
  await undeploy(id)
  expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
})
