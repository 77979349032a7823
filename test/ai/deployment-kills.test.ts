import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { platformCodec } from '../../lib/temporal.ts'
import { queueOf } from '../../lib/parties.ts'
import { Runner } from '../../models/ai/runners.ts'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import type { Accepted } from '../support/clients/caller.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { eventsOf, giveTask, openTemporal } from '../support/host-calls.ts'
import { platform, startAll } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { stackSettings } from '../support/stack.ts'
import { holdsNothing, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// What remains of a deployment if a process is killed while it is made or ended: one runner that takes work, or nothing.

const settings = stackSettings()
const temporal = openTemporal()
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let id: string
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  const say = { kind: 'template', value: 'hello' }
  id = (await workflows.published(specOf({ say }, { models: {}, output: null }))).id
  await workflows.change(id, { spec: specOf({ say }, { models: {}, output: 'two' }) })
  await workflows.publish(id)
})
afterEach(startAll)
afterAll(async () => {
  await removeTenants()
  await temporal.close()
})

const { model: Container } = instanceKinds.container
const containers = () => Container.find({ tenant_id: tenant.id, managed_by: { $ne: null } }).lean()

/** Gives the runner a task, and waits until it has done it. */
async function takesWork(): Promise<void> {
  const { deployment } = await workflows.get(id)
  const codec = platformCodec(settings)
  const none = (workflowId: string) => codec.encode([], { type: 'workflow', workflowId } as never)
  const queue = queueOf({ kind: 'runner', id: deployment?.id ?? '' })
  const task = await giveTask(temporal, queue, none, 'answerOnRunner')
  await eventually(async () =>
    (await eventsOf(temporal, task)).some((event) => event.activityTaskCompletedEventAttributes),
  )
}

const roles = ['worker', 'host', 'gateway', 'temporal', 'mongodb', 'api'] as const

/** MongoDB stays away for longer than a step waits for it, which is then tried again. */
async function restartKilled(role: (typeof roles)[number]): Promise<void> {
  if (role !== 'mongodb') return platform.restartKilled(role)
  await platform.kill(role)
  await eventually(async () => (await tenant.owner.ask('GET', '/api/v1/account')).status === 503)
  await platform.start(role)
}

const cases = roles.flatMap((role) => ['starting', 'waiting'].map((step) => ({ role, step })))

test.each(sampled(cases, 3))(
  'a runner is made once, and ended, if $role is killed at the step "$step"',
  async ({ role, step }) => {
    const { operation } = await workflows.deploy(id)
    await eventually(async () => {
      const { step: present, state } = await operation.now()
      return present?.startsWith(step) || !['pending', 'running'].includes(state)
    })
    await restartKilled(role)
    await operation.success()
    expect(await containers()).toHaveLength(1)
    await takesWork()

    const { operation: end } = await workflows.undeploy(id)
    await restartKilled(role)
    await end.success()
    await nothingIsLeft()
  },
)

async function nothingIsLeft(): Promise<void> {
  expect(await containers()).toEqual([])
  expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
  expect(await Runner.countDocuments({ tenant_id: tenant.id })).toBe(0)
  expect(await tenant.holds()).toEqual(holdsNothing)
}

const canaryCases = roles.flatMap((role) =>
  (['started', 'promoted', 'stopped', 'undeployed'] as const).map((what) => ({ role, what })),
)

test.each(sampled(canaryCases, 2))(
  'a canary has one runner, and its workflow loses no run, if $role is killed while it is $what',
  async ({ role, what }) => {
    const killed = async (asked: Promise<Accepted>): Promise<void> => {
      const { operation } = await asked
      await platform.restartKilled(role)
      await operation.success()
    }
    await (await workflows.deploy(id, { version: 1 })).operation.success()
    const begun = workflows.canary(id, { version: 2, weight: 50 })
    if (what === 'started') await killed(begun)
    else await (await begun).operation.success()
    expect(await engine.withLabel('keelson.tenant', tenant.id)).toHaveLength(2)
    const runs = await Promise.all(
      Array.from({ length: 10 }, async () => (await workflows.run(id, { text: 'x' })).id),
    )
    if (what === 'promoted') await killed(workflows.promote(id))
    if (what === 'stopped') await killed(workflows.stopCanary(id))
    if (what === 'undeployed') await killed(workflows.undeploy(id))
    const ends = await Promise.all(runs.map((run) => workflows.endOfRun(id, run)))
    for (const { version, status, error } of ends) {
      // Only an end that was asked for fails a run.
      const fails = { stopped: version === 2 ? 'canary_stopped' : null, undeployed: 'undeployed' }
      const code = what === 'stopped' || what === 'undeployed' ? fails[what] : null
      if (status !== 'succeeded') expect([status, error?.code]).toEqual(['failed', code])
    }
    if (what === 'promoted' || what === 'stopped') {
      await takesWork()
      expect((await workflows.get(id)).deployment).toMatchObject({ version: what === 'promoted' ? 2 : 1 })
      expect(await engine.withLabel('keelson.tenant', tenant.id)).toHaveLength(1)
    }
    if (what !== 'undeployed') await (await workflows.undeploy(id)).operation.success()
    await nothingIsLeft()
  },
)

test('a runner takes work again after it, its host’s program or the gateway was killed', async () => {
  await (await workflows.deploy(id)).operation.success()
  const [container] = await containers()
  await engine.kill(container?._id ?? '')
  await takesWork()
  for (const role of ['host', 'gateway'] as const) {
    await platform.restartKilled(role)
    await takesWork()
  }
  await (await workflows.undeploy(id)).operation.success()
})
