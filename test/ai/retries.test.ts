import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { AiRunNode, runNodeId } from '../../models/ai/run-node-records.ts'
import { removeRuns } from '../../models/ai/run-removal.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { BlobShare } from '../../models/blob-shares.ts'
import { UnwantedBlob } from '../../models/blobs.ts'
import { insertDeployment } from '../support/ai/inserted-runs.ts'
import { asking, succeeded } from '../support/ai/runner-calls.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf, type RunBody } from '../support/clients/ai-workflows.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Retries of runs. The runner asks by hand, so that a test says what each node does.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let id: string
let ask: Awaited<ReturnType<typeof asking>>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  id = (await workflows.published(specWith(nodes))).id
  ask = await asking(await insertDeployment(tenant.id, id))
})
afterAll(removeTenants)

const nodes = {
  large: { kind: 'template', value: '${input.text}' },
  route: { kind: 'switch', cases: [{ name: 'long', when: 'size(input.text) > 3' }], default: 'short' },
  last: { kind: 'template', needs: ['large', 'route.long'], value: '${nodes.large.output}' },
}
const specWith = (its: Record<string, unknown>): object =>
  specOf(its, { models: {}, budget: { wall_sec: 600 }, output: '${nodes.last.output}' })
/** Larger than what a record holds. */
const large = 'x'.repeat(100_000)

const begin = async (run: RunBody, node: string) => ask('POST', `${run.id}/nodes/${node}/begin?attempt=1`)
const end = async (run: RunBody, node: string, output: unknown, chosen?: string) =>
  expect(await ask('PUT', `${run.id}/nodes/${node}/end?attempt=1`, succeeded(output, chosen))).toMatchObject({
    status: 204,
  })
async function carryOut(run: RunBody, node: string, output: unknown, chosen?: string): Promise<void> {
  expect(await begin(run, node)).toMatchObject({ status: 200, body: { done: null } })
  await end(run, node, output, chosen)
}
async function cancelled(run: RunBody): Promise<RunBody> {
  expect((await workflows.askCancel(id, run.id)).status).toBe(200)
  return workflows.endOfRun(id, run.id)
}
/** A run that was cancelled when its first nodes had ended. */
async function begun(): Promise<RunBody> {
  const run = await workflows.run(id, { text: 'hello' })
  await carryOut(run, 'large', large)
  await carryOut(run, 'route', 'long', 'long')
  await begin(run, 'last')
  return cancelled(run)
}
const byNode = ({ nodes: all }: RunBody) => Object.fromEntries(all.map((one) => [one.node, one]))
const blobOf = async (run: RunBody) =>
  (await AiRunNode.findOne({ _id: runNodeId(run.id, 'large'), tenant_id: tenant.id }).lean())?.output?.blob
    ?.key
/** A worker may have removed it. */
async function expectDropped(...blobs: (string | undefined)[]): Promise<void> {
  const _id = { $in: blobs.map(String) }
  expect(await BlobShare.countDocuments({ _id })).toBe(0)
  for (const { remove_at } of await UnwantedBlob.find({ _id }).lean())
    expect(remove_at.getTime()).toBeLessThanOrEqual(Date.now())
}
const remove = ({ id: _id }: RunBody) => removeRuns({ _id, tenant_id: tenant.id })

test('a retry takes over what has ended, repeats the rest, and outlives the run before it', async () => {
  const former = await begun()
  const headers = { 'idempotency-key': newId() }
  const [first, again] = [
    await workflows.askRetry(id, former.id, headers),
    await workflows.askRetry(id, former.id, headers),
  ]
  expect([first.status, again.body['id']]).toEqual([201, first.body['id']])
  const retry = first.body as RunBody
  expect(retry).toMatchObject({
    retry_of: former.id,
    trigger: 'retry',
    input: { text: 'hello' },
    output_bytes: 0,
  })

  const done = { status: 'succeeded', case: null }
  expect((await begin(retry, 'large')).body).toEqual({ done, given: '{}', nodes: {} })
  // Its answer was lost.
  expect((await begin(retry, 'large')).body['done']).toEqual(done)
  expect((await begin(retry, 'route')).body['done']).toEqual({ status: 'succeeded', case: 'long' })
  const { body } = await begin(retry, 'last')
  expect(body).toMatchObject({ done: null, nodes: { large: done } })
  expect(JSON.parse(String(body['given']))).toMatchObject({ nodes: { large: { output: large } } })

  const blob = await blobOf(former)
  expect(await blobOf(retry)).toBe(blob)
  await remove(former)
  expect(await UnwantedBlob.countDocuments({ _id: String(blob) })).toBe(0)
  expect((await workflows.runNode(id, retry.id, 'large')).output).toBe(large)

  const second = await workflows.retry(id, (await cancelled(retry)).id)
  await begin(second, 'large')
  const { large: taken, last } = byNode(await cancelled(second))
  // The run that made it, though that is gone.
  expect(taken).toMatchObject({ reused_from: former.id, output_bytes: large.length + 2, attempt: null })
  expect(last).toBeUndefined()
  await remove(retry)
  await remove(second)
  await expectDropped(blob)
})

test('a retry of a retry takes outputs from all of them', async () => {
  const former = await begun()
  const between = await cancelled(await workflows.retry(id, former.id))
  expect(between.nodes.filter(({ status }) => status === 'succeeded')).toEqual([])
  const last = await workflows.retry(id, between.id)
  expect((await begin(last, 'large')).body['done']).toMatchObject({ status: 'succeeded' })
  const { large: taken } = byNode(await cancelled(last))
  expect(taken?.reused_from).toBe(former.id)
})

test('runs that are removed at once, or while they are retried, leave no blob and take none away', async () => {
  for (let round = 0; round < 3; round++) {
    const former = await begun()
    const retry = await workflows.retry(id, former.id)
    const blob = await blobOf(former)
    const [answer] = await Promise.all([begin(retry, 'large'), remove(former)])
    if (answer.body['done'] === null) await end(retry, 'large', large)
    await cancelled(retry)
    expect((await workflows.runNode(id, retry.id, 'large')).output).toBe(large)
    const shared = await workflows.retry(id, retry.id)
    await begin(shared, 'large')
    await cancelled(shared)
    const kept = await blobOf(shared)
    await Promise.all([remove(retry), remove(shared)])
    await expectDropped(blob, kept)
  }
})

describe('a retry is refused', () => {
  test('while the run is open, and if it succeeded', async () => {
    const run = await workflows.run(id, { text: 'hello' })
    expect(await workflows.askRetry(id, run.id)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict' },
    })
    await cancelled(run)
    await AiRun.updateOne({ _id: run.id, tenant_id: tenant.id }, { $set: { status: 'succeeded' } })
    expect(await workflows.askRetry(id, run.id)).toMatchObject({ status: 409, body: { state: 'succeeded' } })
  })

  test('to who may not run, and to another tenant', async () => {
    const run = await cancelled(await workflows.run(id, { text: 'hello' }))
    expect(await aiWorkflowsOf(await tenant.user('viewer')).askRetry(id, run.id)).toMatchObject({
      status: 403,
    })
    expect(await aiWorkflowsOf((await makeTenant()).owner).askRetry(id, run.id)).toMatchObject({
      status: 404,
    })
  })
})

test('a node that has changed is not taken over, and what is not deployed is not retried', async () => {
  const former = await begun()
  await (await workflows.undeploy(id)).operation.success()
  expect(await workflows.askRetry(id, former.id)).toMatchObject({
    status: 409,
    body: { code: 'not_deployed' },
  })
  const louder = { kind: 'template', value: '${input.text}!' }
  await workflows.change(id, { spec: specWith({ ...nodes, large: louder }) })
  expect((await workflows.publish(id)).status).toBe(201)
  ask = await asking(await insertDeployment(tenant.id, id, 2))
  const retry = await workflows.retry(id, former.id)
  expect(retry).toMatchObject({ version: 2, retry_of: former.id })
  expect((await begin(retry, 'large')).body['done']).toBeNull()
  expect((await begin(retry, 'route')).body['done']).toEqual({ status: 'succeeded', case: 'long' })
  await cancelled(retry)
})
