import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { itemsWorkflowId } from '../../lib/operation-workflows.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { AiWorkflow } from '../../models/ai/ai-workflows.ts'
import { AiRunNode } from '../../models/ai/run-node-records.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { AuditEvent } from '../../models/identity/audit.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf, type RunBody } from '../support/clients/ai-workflows.ts'
import { eventually } from '../support/eventually.ts'
import { platform, startAll } from '../support/platform.ts'
import { stackSettings } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Nodes that wait: for a person, and for runs of another workflow. Two workflows are deployed: one calls the other.

const when = (text: string) => ({ when: `input.text == '${text}'` })
const plain = { models: {}, budget: { wall_sec: 3_600 } }
const temporal = temporalClient(stackSettings())
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let callee: string
let id: string

beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  const shout = {
    // It fails for an empty text, and asks somebody who never answers if it is told to wait.
    ask: { kind: 'approve', when: "input.text == 'wait'", message: 'Go on?', deadline_sec: 3_600 },
    say: { kind: 'template', value: '${input.text}, ${["fine"][input.text == "" ? 1 : 0]}!' },
  }
  callee = (await workflows.published(specOf(shout, { ...plain, output: '${nodes.say.output}' }))).id
  await (await workflows.deploy(callee)).operation.success()

  const retry = { max: 0 }
  const call = { kind: 'workflow', workflow: callee, retry }
  const map = { kind: 'map', items: 'input.tags', at_once: 2 }
  const nodes = {
    ask: {
      kind: 'approve',
      when: "input.text in ['ask', 'deep']",
      message: 'May we, ${input.text}?',
      deadline_sec: 3_600,
    },
    deep: { ...call, needs: ['ask'], ...when('deep'), input: { text: '${input.text}' } },
    late: {
      kind: 'approve',
      ...when('late'),
      message: 'Now?',
      deadline_sec: 1,
      on_error: { goto: 'instead' },
    },
    instead: { kind: 'template', value: '${nodes.late.error.code}' },
    call: { ...call, ...when('call'), input: { text: '${input.tags[0]}' } },
    each: {
      ...map,
      ...when('each'),
      do: { ...call, input: { text: '${item}' }, on_error: { value: 'none' } },
    },
    all: { kind: 'merge', needs: ['ask', 'instead', 'call', 'each'], take: 'first' },
  }
  id = (await workflows.published(specOf(nodes, { ...plain, output: '${nodes.all.output}' }))).id
  await (await workflows.deploy(id)).operation.success()
})
afterEach(startAll)
afterAll(async () => {
  await removeTenants()
  await temporal.connection.close()
})

const nodeOf = (run: RunBody, name: string) => run.nodes.find(({ node }) => node === name)
const decide = (run: string, body: object, node = 'ask', by = workflows) =>
  by.askDecision(id, run, node, body)
const statusOf = async (run: string, node: string) => nodeOf(await workflows.getRun(id, run), node)?.status

const childrenOf = (run: string) => AiRun.find({ tenant_id: tenant.id, 'parent.run_id': run }).lean()

/** A run that asks somebody. */
async function asking(text = 'ask'): Promise<string> {
  const { id: run } = await workflows.run(id, { text })
  await eventually(async () => (await statusOf(run, 'ask')) === 'waiting')
  return run
}

describe('a node that asks a person', () => {
  test('waits with its message, and has the decision as its output, which is taken once', async () => {
    const run = await asking()
    const waiting = await workflows.getRun(id, run)
    expect(waiting.status).toBe('running')
    expect(nodeOf(waiting, 'ask')).toMatchObject({ status: 'waiting', asked: { message: 'May we, ask?' } })

    const viewer = aiWorkflowsOf(await tenant.user('viewer'))
    const stranger = aiWorkflowsOf((await makeTenant()).owner)
    expect(await decide(run, { approved: true }, 'ask', viewer)).toMatchObject({ status: 403 })
    expect(await decide(run, { approved: true }, 'ask', stranger)).toMatchObject({ status: 404 })
    expect(await decide(run, { approved: true }, 'all')).toMatchObject({ status: 404 })
    expect(await decide(run, {})).toMatchObject({ status: 422 })

    const approval = { approved: true, comment: 'Please do' }
    expect(await decide(run, approval)).toMatchObject({ status: 200, body: { status: 'succeeded' } })
    expect(await decide(run, approval)).toMatchObject({ status: 200 })
    expect(await decide(run, { approved: false })).toMatchObject({
      status: 409,
      body: { code: 'already_decided' },
    })
    const end = await workflows.endOfRun(id, run)
    const at = expect.stringMatching(/^\d{4}-/)
    expect(end).toMatchObject({
      status: 'succeeded',
      output: { by: expect.any(String), comment: 'Please do', at },
    })
    const path = `/api/v1/workflows/${id}/runs/${run}/nodes/ask/decision`
    await eventually(() => AuditEvent.exists({ tenant_id: tenant.id, path }))
  })

  test('fails by a refusal, and by the end of its deadline', async () => {
    const run = await asking()
    await decide(run, { approved: false, comment: 'Not now' })
    const end = await workflows.endOfRun(id, run)
    expect(end).toMatchObject({ status: 'failed', error: { code: 'refused', node: 'ask' } })
    expect(end.error?.message).toContain('Not now')
    const late = await workflows.run(id, { text: 'late' }, '?wait=60')
    expect(late).toMatchObject({ status: 'succeeded', output: 'deadline_over' })
    expect(await decide(late.id, { approved: true }, 'late')).toMatchObject({ status: 409 })
  })

  test('ends with its run, if that is cancelled', async () => {
    const run = await asking()
    await workflows.askCancel(id, run)
    const end = await workflows.endOfRun(id, run)
    expect(end.status).toBe('cancelled')
    expect(nodeOf(end, 'ask')).toMatchObject({ status: 'cancelled' })
    expect(await decide(run, { approved: true })).toMatchObject({
      status: 409,
      body: { code: 'state_conflict' },
    })
  })

  test('goes on if Temporal was away when the decision came, and the API was killed before it was back', async () => {
    const run = await asking()
    await platform.kill('temporal')
    expect(await decide(run, { approved: true })).toMatchObject({ status: 200 })
    await platform.restartKilled('api')
    expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: run, untold: true })).toBe(1)
    await platform.start('temporal')
    expect(await workflows.endOfRun(id, run)).toMatchObject({ status: 'succeeded' })
    await eventually(
      async () => !(await AiRunNode.exists({ tenant_id: tenant.id, run_id: run, untold: true })),
    )
  })
})

describe('a node that is a run of another workflow', () => {
  test('has its output, also if the worker is killed meanwhile, and starts it once', async () => {
    const { id: run } = await workflows.run(id, { text: 'call', tags: ['you'] })
    await eventually(() => AiRunNode.exists({ tenant_id: tenant.id, run_id: run, node: 'call' }))
    await platform.restartKilled('worker')
    const end = await workflows.endOfRun(id, run)
    expect(end).toMatchObject({ status: 'succeeded', output: 'you, fine!' })
    const [child, ...others] = await childrenOf(run)
    expect(others).toEqual([])
    expect(nodeOf(end, 'call')).toMatchObject({ child_run_id: child?._id })
    expect(await workflows.getRun(callee, child?._id ?? '')).toMatchObject({
      trigger: 'workflow',
      parent: { run_id: run, node: 'call', item: null },
      input: { text: 'you' },
    })
  })

  test('fails with what that run says', async () => {
    const end = await workflows.run(id, { text: 'call', tags: [''] }, '?wait=60')
    expect(end).toMatchObject({ status: 'failed', error: { code: 'workflow_failed', node: 'call' } })
  })

  test('is a map’s item, with another value if it fails', async () => {
    const { id: run } = await workflows.run(id, { text: 'each', tags: ['a', '', 'b', 'c'] })
    const end = await workflows.endOfRun(id, run)
    expect(end).toMatchObject({ status: 'succeeded', output: ['a, fine!', 'none', 'b, fine!', 'c, fine!'] })
    expect(nodeOf(end, 'each')).toMatchObject({ items: { all: 4, ended: 4, failed: 1 } })
    const children = await childrenOf(run)
    expect(children).toHaveLength(4)
    expect(new Set(children.map(({ parent }) => parent?.item))).toEqual(new Set([0, 1, 2, 3]))
  })

  test('is a map’s item, of which as many run at once as the map says, and operators see in Temporal which began last', async () => {
    const { id: run } = await workflows.run(id, { text: 'each', tags: ['wait', 'wait', 'wait'] })
    const map = temporal.workflow.getHandle(itemsWorkflowId(run, 'each'))
    const isAt = async (details: string): Promise<boolean> =>
      (await map.query<{ currentDetails: string }>('__temporal_workflow_metadata')).currentDetails === details
    await eventually(() => isAt('item 1 of 3'))
    for (const item of [0, 1, 2]) {
      const child = await eventually(async () =>
        (await childrenOf(run)).find(({ parent }) => parent?.item === item),
      )
      if (item === 2) await eventually(() => isAt('item 2 of 3'))
      const decided = () => workflows.askDecision(callee, child._id, 'ask', { approved: true })
      await eventually(async () => (await decided()).status === 200)
    }
    const end = await workflows.endOfRun(id, run)
    expect(end).toMatchObject({ status: 'succeeded', output: ['wait, fine!', 'wait, fine!', 'wait, fine!'] })
    const children = await childrenOf(run)
    const last = children.find(({ parent }) => parent?.item === 2)
    const ends = children.flatMap((child) => (child === last ? [] : [Number(child.ended_at)]))
    expect(Number(last?.created_at)).toBeGreaterThanOrEqual(Math.min(...ends))
  })

  test('is cancelled with the run whose part it is', async () => {
    const { id: run } = await workflows.run(id, { text: 'call', tags: ['wait'] })
    await eventually(async () => (await childrenOf(run)).length === 1)
    await workflows.askCancel(id, run)
    expect(await workflows.endOfRun(id, run)).toMatchObject({ status: 'cancelled' })
    const [child] = await childrenOf(run)
    expect(await workflows.endOfRun(callee, child?._id ?? '')).toMatchObject({ status: 'cancelled' })
  })

  test('is refused if it would be too deep, and if that workflow is not deployed', async () => {
    const deep = await asking('deep')
    await AiRun.updateOne({ _id: deep, tenant_id: tenant.id }, { $set: { depth: 5 } })
    await decide(deep, { approved: true })
    expect(await workflows.endOfRun(id, deep)).toMatchObject({
      status: 'failed',
      error: { code: 'depth_too_high', node: 'deep' },
    })
    await (await workflows.undeploy(callee)).operation.success()
    const end = await workflows.run(id, { text: 'call', tags: ['you'] }, '?wait=60')
    expect(end).toMatchObject({ status: 'failed', error: { code: 'not_deployed', node: 'call' } })
    expect(await childrenOf(end.id)).toEqual([])
  })
})

test('an undeployment ends what waits, and leaves no open run', async () => {
  const run = await asking()
  await (await workflows.undeploy(id)).operation.success()
  expect(await workflows.getRun(id, run)).toMatchObject({ status: 'failed', error: { code: 'undeployed' } })
  expect(await decide(run, { approved: true })).toMatchObject({ status: 409 })
  for (const one of [id, callee])
    expect((await AiWorkflow.findOne({ _id: one, tenant_id: tenant.id }).lean())?.runs_open).toBe(0)
  expect(await AiRun.countDocuments({ tenant_id: tenant.id, open: true })).toBe(0)
})
