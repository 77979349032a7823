import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { AiWorkflow } from '../../models/ai/ai-workflows.ts'
import { AiRunNode, runNodeId } from '../../models/ai/run-node-records.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf, type RunBody } from '../support/clients/ai-workflows.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { platform, type RoleName, startAll } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs while processes are killed: each ends as it would have ended, each node once.

const length = 6
const names = Array.from({ length }, (_, at) => `n${at}`)
/** Each node adds one to the output of the node before, so that a node that is missing, or counts twice, shows. */
const chain = Object.fromEntries(
  names.map((name, at) => [
    name,
    at === 0
      ? { kind: 'template', value: '${size(input.text)}' }
      : { kind: 'template', needs: [`n${at - 1}`], value: `\${nodes.n${at - 1}.output + 1}` },
  ]),
)

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let id: string
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  const spec = specOf(chain, {
    models: {},
    budget: { wall_sec: 3_600 },
    output: `\${nodes.n${length - 1}.output}`,
  })
  id = (await workflows.published(spec)).id
  await (await workflows.deploy(id)).operation.success()
})
afterEach(startAll)
afterAll(removeTenants)

const killRunner = async (): Promise<void> => {
  const its = { tenant_id: tenant.id, managed_by: { $ne: null } }
  const [container] = await instanceKinds.container.model.find(its).lean()
  await engine.kill(container?._id ?? '') // its engine starts it again
}
const kill = (role: RoleName | 'runner'): Promise<void> =>
  role === 'runner' ? killRunner() : platform.restartKilled(role)

/** Each node has succeeded, and the workflow has no open run. */
async function isWhole(run: RunBody): Promise<void> {
  expect(run).toMatchObject({ status: 'succeeded', error: null, output: 3 + length - 1 })
  expect(run.nodes).toHaveLength(length)
  expect(Object.fromEntries(run.nodes.map(({ node, status }) => [node, status]))).toEqual(
    Object.fromEntries(names.map((name) => [name, 'succeeded'])),
  )
  expect(run.output_bytes).toBe(length + 1)
  expect((await AiWorkflow.findOne({ _id: id, tenant_id: tenant.id }).lean())?.runs_open).toBe(0)
}

const roles = ['runner', 'worker', 'api', 'gateway', 'temporal', 'mongodb', 'host'] as const
const cases = roles.flatMap((role) => names.map((_, at) => ({ role, at })))

test.each(sampled(cases, 5))(
  'a run ends as it should if $role is killed when node $at has begun',
  async ({ role, at }) => {
    const { id: run } = await workflows.run(id, { text: 'abc' })
    await eventually(() => AiRunNode.exists({ _id: runNodeId(run, `n${at}`), tenant_id: tenant.id }))
    await kill(role)
    await isWhole(await workflows.endOfRun(id, run))
  },
)

test('runs that the API accepted, and was killed before it started them, run once Temporal is back', async () => {
  await platform.kill('temporal')
  const runs = await Promise.all(Array.from({ length: 5 }, () => workflows.run(id, { text: 'abc' })))
  expect(await AiRun.countDocuments({ tenant_id: tenant.id, workflow_id: id, undispatched: true })).toBe(5)
  await platform.restartKilled('api')
  await platform.start('temporal')
  for (const { id: run } of runs) {
    const end = await workflows.endOfRun(id, run)
    expect(end).toMatchObject({ status: 'succeeded', output: 3 + length - 1 })
  }
  expect(await AiRun.countDocuments({ tenant_id: tenant.id, workflow_id: id, undispatched: true })).toBe(0)
})

test('runs end as undeployed, and leave nothing, if the worker is killed meanwhile', async () => {
  const runs = await Promise.all(Array.from({ length: 20 }, () => workflows.run(id, { text: 'abc' })))
  const { operation } = await workflows.undeploy(id)
  await platform.restartKilled('worker')
  await operation.success()
  for (const { id: run } of runs) {
    const { status, error } = await workflows.endOfRun(id, run)
    if (status !== 'succeeded') expect([status, error]).toMatchObject(['failed', { code: 'undeployed' }])
  }
  expect((await AiWorkflow.findOne({ _id: id, tenant_id: tenant.id }).lean())?.runs_open).toBe(0)
  expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, status: 'running' })).toBe(0)
})
