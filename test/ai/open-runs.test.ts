import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { AiWorkflow } from '../../models/ai/ai-workflows.ts'
import { AiRunNode } from '../../models/ai/run-node-records.ts'
import { settleNode, skipNodes } from '../../models/ai/run-node-ends.ts'
import { removeOldRuns } from '../../models/ai/run-removal.ts'
import type { RunnerDocument } from '../../models/ai/runners.ts'
import { endRun } from '../../models/ai/run-ends.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { insertDeployment } from '../support/ai/inserted-runs.ts'
import { asking, succeeded } from '../support/ai/runner-calls.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { eventually } from '../support/eventually.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs that stay open, because their deployment has no container: what a runner may read and write of them, and what they
// keep from going.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})
afterAll(removeTenants)

const nodes = {
  one: { kind: 'template', value: { first: '${input.text}' } },
  two: { kind: 'template', value: 'two', on_error: { value: 'instead' } },
  three: { kind: 'template', needs: ['one', 'two'], value: '${nodes.two.output}' },
}

async function makeOpen(): Promise<{ id: string; runner: RunnerDocument }> {
  const { id } = await workflows.published(
    specOf(nodes, { models: {}, budget: { wall_sec: 600 }, output: '${nodes.three.output}' }),
  )
  return { id, runner: await insertDeployment(tenant.id, id) }
}

const openOf = async (id: string) =>
  (await AiWorkflow.findOne({ _id: id, tenant_id: tenant.id }).lean())?.runs_open

describe('a runner', () => {
  test('gets what the expressions of a node name, gives its output once, and a late attempt changes nothing', async () => {
    const { id, runner } = await makeOpen()
    const ask = await asking(runner)
    const run = await workflows.run(id, { text: 'hello' })
    const at = (node: string, what: string, attempt = 1) =>
      `${run.id}/nodes/${node}/${what}?attempt=${attempt}`

    const begun = await ask('POST', at('one', 'begin'))
    expect(begun).toMatchObject({ status: 200, body: { done: null, nodes: {} } })
    expect(JSON.parse(String(begun.body['given']))).toEqual({ input: { text: 'hello' }, nodes: {} })
    // The next attempt begins while the first is still at work.
    expect(await ask('POST', at('one', 'begin', 2))).toMatchObject({ status: 200, body: { done: null } })
    expect(await ask('PUT', at('one', 'end', 1), succeeded('late'))).toMatchObject({
      status: 409,
      body: { code: 'attempt_over' },
    })
    expect(await ask('POST', at('one', 'begin', 1))).toMatchObject({ status: 409 })
    expect(await ask('PUT', at('one', 'end', 2), succeeded({ first: 's' }))).toMatchObject({ status: 204 })
    // Its answer was lost: it says so again, and a further attempt hears that it is done.
    expect(await ask('PUT', at('one', 'end', 2), succeeded({ first: 's' }))).toMatchObject({ status: 204 })
    expect(await ask('POST', at('one', 'begin', 3))).toMatchObject({
      status: 200,
      body: { done: { status: 'succeeded', case: null } },
    })
    expect(await workflows.runNode(id, run.id, 'one')).toMatchObject({ attempt: 2, output: { first: 's' } })

    const record = await AiRun.findOne({ _id: run.id, tenant_id: tenant.id }).lean()
    expect(record?.output_bytes).toBe(JSON.stringify({ first: 's' }).length)
    await settleNode({ _id: run.id, tenant_id: tenant.id }, 'two', 'failed', { code: 'x', message: 'why' })
    const three = await ask('POST', at('three', 'begin'))
    // What it names alone: not the output of `one`.
    expect(JSON.parse(String(three.body['given']))).toEqual({
      input: { text: 'hello' },
      nodes: { two: { status: 'succeeded', output: 'instead' } },
    })
    await workflows.askCancel(id, run.id)
    await workflows.endOfRun(id, run.id)
    expect(await ask('PUT', at('three', 'end'), succeeded('too late'))).toMatchObject({
      status: 409,
      body: { code: 'attempt_over' },
    })
    expect(await ask('PUT', `${run.id}/output`, { output: '1' })).toMatchObject({ status: 409 })
    // It reads nothing of a run that has ended, either.
    for (const [method, path] of [
      ['GET', 'output'],
      ['GET', 'nodes/three/values'],
      ['POST', 'nodes/three/begin?attempt=2'],
      ['POST', 'models/fast/token'],
    ] as const)
      expect([path, await ask(method, `${run.id}/${path}`)]).toMatchObject([path, { status: 409 }])
    expect(await workflows.runNode(id, run.id, 'three')).toMatchObject({ status: 'cancelled', output: null })
    await (await workflows.undeploy(id)).operation.success()
  })

  test('is refused what is no value, and more than a run may have', async () => {
    const { id, runner } = await makeOpen()
    const ask = await asking(runner)
    const run = await workflows.run(id, { text: 'hello' })
    const end = `${run.id}/nodes/one/end?attempt=1`
    await ask('POST', `${run.id}/nodes/one/begin?attempt=1`)
    for (const [output, code] of [
      ['{"a":', 'no_json'],
      ['['.repeat(100) + ']'.repeat(100), 'too_large'],
      [JSON.stringify('x'.repeat(8 * 1024 ** 2)), 'too_large'],
    ])
      expect(await ask('PUT', end, { status: 'succeeded', case: null, output })).toMatchObject({
        status: 422,
        body: { code },
      })
    await AiRun.updateOne(
      { _id: run.id, tenant_id: tenant.id },
      { $set: { output_bytes: 64 * 1024 ** 2 - 5 } },
    )
    expect(await ask('PUT', end, succeeded('more'))).toMatchObject({
      status: 422,
      body: { code: 'too_large' },
    })
    expect(await ask('PUT', end, succeeded('all'))).toMatchObject({ status: 204 })
    expect(await ask('POST', `${run.id}/nodes/none/begin?attempt=1`)).toMatchObject({ status: 404 })
    await (await workflows.undeploy(id)).operation.success()
  })

  test('finds no run of another deployment, of its own tenant or of others', async () => {
    const [mine, other] = [await makeOpen(), await makeOpen()]
    const ask = await asking(mine.runner)
    const run = await workflows.run(other.id, { text: 'theirs' })
    for (const [method, path, body] of [
      ['POST', 'nodes/one/begin?attempt=1', undefined],
      ['PUT', 'nodes/one/end?attempt=1', succeeded('x')],
      ['GET', 'output', undefined],
      ['PUT', 'output', { output: '1' }],
    ] as const)
      expect([path, await ask(method, `${run.id}/${path}`, body)]).toMatchObject([path, { status: 404 }])
    expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: run.id })).toBe(0)
    for (const { id } of [mine, other]) await (await workflows.undeploy(id)).operation.success()
  })
})

describe('an open run', () => {
  test('keeps its workflow from deletion, and fails when that is undeployed', async () => {
    const { id } = await makeOpen()
    const runs = [await workflows.run(id, { text: 'a' }), await workflows.run(id, { text: 'b' })]
    expect(await openOf(id)).toBe(2)
    expect(await workflows.delete(id)).toMatchObject({
      status: 409,
      body: { code: 'runs_in_flight', runs_open: 2 },
    })
    expect(await workflows.delete(id, '?force=true')).toMatchObject({ status: 409 })
    await (await workflows.undeploy(id)).operation.success()
    for (const run of runs)
      expect(await workflows.getRun(id, run.id)).toMatchObject({
        status: 'failed',
        error: { code: 'undeployed', node: null },
      })
    expect(await openOf(id)).toBe(0)
    expect(await workflows.delete(id)).toMatchObject({ status: 204 })
  })

  test('is cancelled before any node has begun, and ends once', async () => {
    const { id } = await makeOpen()
    const run = await workflows.run(id, { text: 'a' })
    const answer = await workflows.askCancel(id, run.id)
    expect(answer).toMatchObject({ status: 200, body: { id: run.id } })
    const end = await workflows.endOfRun(id, run.id)
    expect(end).toMatchObject({ status: 'cancelled', error: null, output: null })
    expect(await openOf(id)).toBe(0)
    // A second end changes nothing.
    const error = { code: 'internal', message: 'again', node: null }
    await endRun({ _id: run.id, workflow_id: id }, { status: 'failed', error })
    expect(await openOf(id)).toBe(0)
    expect(await workflows.getRun(id, run.id)).toEqual(end)
    await (await workflows.undeploy(id)).operation.success()
  })

  test('ends when its time is over', async () => {
    const { id } = await workflows.published(specOf(nodes, { models: {}, budget: { wall_sec: 1 } }))
    await insertDeployment(tenant.id, id)
    const run = await workflows.run(id, { text: 'a' })
    expect(await workflows.endOfRun(id, run.id)).toMatchObject({
      status: 'failed',
      error: { code: 'out_of_time', node: null },
    })
    await (await workflows.undeploy(id)).operation.success()
  })

  test('and the deletion of its workflow exclude each other, whichever comes first', async () => {
    for (let round = 0; round < 5; round++) {
      const { id, runner } = await makeOpen()
      const [run, gone] = await Promise.all([
        workflows.askRun(id, { input: { text: 'race' } }),
        (async () => {
          await (await workflows.undeploy(id)).operation.success()
          return workflows.delete(id)
        })(),
      ])
      // 404 if the deletion was the first to be served.
      expect([201, 404, 409]).toContain(run.status)
      expect(gone.status).toBe(204)
      const open = await AiRun.countDocuments({ tenant_id: tenant.id, deployment_id: runner._id, open: true })
      expect(open).toBe(0)
    }
  })
})

test('a run goes with its nodes when it has ended for longer than runs are kept, and others stay', async () => {
  const { id } = await makeOpen()
  const days = 90
  const [old, young, open] = await Promise.all(['a', 'b', 'c'].map((text) => workflows.run(id, { text })))
  const ended = [
    { run: old, ago: days + 1 },
    { run: young, ago: days - 1 },
  ]
  for (const { run, ago } of ended) {
    const its = { _id: run?.id ?? '', tenant_id: tenant.id }
    await skipNodes(its, ['one', 'two'])
    await endRun({ _id: its._id, workflow_id: id }, { status: 'cancelled' })
    await AiRun.updateOne(its, { $set: { ended_at: new Date(Date.now() - ago * 86_400_000) } })
  }
  while (await removeOldRuns(days)) {} // as a worker does
  const left = await AiRun.find({ tenant_id: tenant.id, workflow_id: id }, { _id: 1 }).lean()
  expect(new Set(left.map(({ _id }) => _id))).toEqual(new Set([young?.id, open?.id]))
  expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: old?.id ?? '' })).toBe(0)
  expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: young?.id ?? '' })).toBe(2)
  await (await workflows.undeploy(id)).operation.success()
})

test('a node that is skipped or settled is so once', async () => {
  const { id } = await makeOpen()
  const { id: run_id } = await workflows.run(id, { text: 'a' })
  const run = { _id: run_id, tenant_id: tenant.id }
  await skipNodes(run, ['one', 'two'])
  await skipNodes(run, ['one'])
  const error = { code: 'x', message: 'why' }
  expect(await settleNode(run, 'one', 'failed', error)).toEqual({ status: 'skipped', case: null })
  expect(await settleNode(run, 'three', 'failed', error)).toEqual({ status: 'failed', case: null })
  expect(await settleNode(run, 'three', 'cancelled', null)).toEqual({ status: 'failed', case: null })
  await eventually(async () => (await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id })) === 3)
  await (await workflows.undeploy(id)).operation.success()
})
