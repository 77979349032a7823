import { createHash, randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { loadAppImages } from '../support/app-images.ts'
import { archiveOf } from '../support/archives.ts'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { type ApplicationBody, applicationsOf } from '../support/clients/applications.ts'
import { eventsOf } from '../support/clients/events.ts'
import { makeEngine, testPorts } from '../support/containers.ts'
import { eventually } from '../support/eventually.ts'
import { platform } from '../support/platform.ts'
import { startReceiver } from '../support/receiver.ts'
import { sampled } from '../support/sampled.ts'
import { innerEngine } from '../support/machines-inside.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit, visitors } from '../support/visits.ts'

// If a process is killed (-9) while an application is deployed, it ends as requested, no visitor sees it, and one
// release is left. The tests look at the workers' engines and at what visitors get, not only at the records.

const roles = ['worker', 'host', 'api', 'temporal', 'mongodb'] as const
type Role = (typeof roles)[number]

let tenant: TestTenant
let server: DeployServerBody
let apps: ReturnType<typeof applicationsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  await loadAppImages(tenant.owner, server)
  apps = applicationsOf(tenant.owner, server.id)
})

const inPhase = (name: string) => (id: string) =>
  eventually(async () => (await apps.deployment(id)).phases.some(({ phase }) => phase === name))

/** The deployments whose containers run. Swarm ends containers in the background, after the deployment. */
async function running(): Promise<string[]> {
  const inner = await innerEngine(tenant.owner, server.workers[0]?.machine_id ?? '')
  return (await inner.listContainers()).map(({ Labels }) => Labels['keelson.deployment'] ?? '')
}

async function remove(app: ApplicationBody): Promise<void> {
  await (await apps.delete(app.id)).operation.success()
  await eventually(async () => (await running()).length === 0)
}

const moments = {
  'is accepted': async (_: string, { operation }: Accepted) =>
    eventually(async () => (await operation.now()).state === 'running'),
  'starts the release': inPhase('starting'),
  'checks the release': inPhase('checking'),
  'switches to the release': inPhase('switching'),
  'drains the former release': inPhase('draining'),
}
const points = Object.entries(moments).flatMap(([when, moment]) =>
  roles.map((role) => ({ role, when, moment })),
)

describe('a deployment', () => {
  test.each(sampled(points, 3))(
    'completes unseen if $role is killed when it $when',
    async ({ role, moment }) => {
      const app = await apps.make()
      const load = visitors(app.url, 2)
      const deployment = await apps.deploy(app.id, { tag: 'v2' })
      await moment(deployment.id, deployment)
      await platform.restartKilled(role)
      expect(await deployment.operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await load.stop()
      expect(load.failures).toEqual([])
      expect((await visit(app.url)).text).toBe('v2')
      await eventually(async () => (await running()).join() === deployment.id)
      expect(await apps.get(app.id)).toMatchObject({ status: 'running', deploying_id: null })
      await remove(app)
    },
  )

  test.each(sampled(roles, 1))('that fails is taken back unseen if %s is killed meanwhile', async (role) => {
    const app = await apps.make()
    const events = eventsOf(tenant.owner, server.id)
    const subscription = await events.make({ url: 'http://localhost:9/' }) // for its log
    await apps.change(app.id, { health_check: { within_sec: 10 } })
    const load = visitors(app.url, 2)
    const { id, operation } = await apps.deploy(app.id, { tag: 'silent' })
    await inPhase('checking')(id)
    await platform.restartKilled(role)
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'service_failed' } })
    await load.stop()
    expect(load.failures).toEqual([])
    await eventually(async () => !(await running()).includes(id))
    expect(await apps.get(app.id)).toMatchObject({ status: 'running', deploying_id: null })
    const told = await events.deliveries(subscription.id, `&q=${app.name}&order=asc`)
    expect(told.map(({ kind }) => kind)).toEqual(['application.deploy_failed', 'application.rolled_back'])
    await events.delete(subscription.id)
    await remove(app)
  })
})

test.each(sampled(roles, 1))('the deletion of an application completes if %s is killed', async (role) => {
  const app = await apps.make()
  const { operation } = await apps.delete(app.id)
  await eventually(async () => (await operation.now()).state !== 'pending')
  await platform.restartKilled(role)
  expect(await operation.end()).toMatchObject({ state: 'succeeded' })
  await eventually(async () => (await running()).length === 0)
})

async function arrivesIfKilled(role: Role, whileRead: boolean): Promise<void> {
  const receiver = await startReceiver()
  try {
    receiver.replies('/killed', (count) => (whileRead && count === 1 ? null : { status: 204 }))
    const events = eventsOf(tenant.owner, server.id)
    const { id } = await events.make({ url: receiver.url('/killed') })
    const told = await events.test(id)
    if (whileRead) await receiver.arrived('/killed')
    await platform.restartKilled(role)
    const ended = await events.awaitDelivery(id, told.id, ({ status }) => status !== 'waiting')
    expect(ended).toMatchObject({ status: 'delivered' })
    const ids = receiver.at('/killed').map(({ headers }) => headers['webhook-id'])
    expect(new Set(ids)).toEqual(new Set([told.event_id]))
    expect(ids.length).toBeLessThanOrEqual(ended.attempts)
    await events.delete(id)
  } finally {
    await receiver.close()
  }
}

const tellings = (['worker', 'mongodb', 'api'] as const).flatMap((role) => [
  { role, when: 'is told', whileRead: false },
  { role, when: 'is read by its receiver', whileRead: true },
])

test.each(sampled(tellings, 1))(
  'an event is delivered, with one id, if $role is killed when it $when',
  ({ role, whileRead }) => arrivesIfKilled(role, whileRead),
)

describe('a run of a scheduled task', () => {
  const command = 'echo run >>/tmp/runs; sleep 4; cat /tmp/runs'

  test.each(sampled(['worker', 'api', 'temporal', 'mongodb'] as const, 1))(
    'runs once if %s is killed meanwhile',
    async (role) => {
      const app = await apps.make()
      const { body } = await apps.addTask(app.id, { command })
      const run = await apps.runTask(app.id, String(body['id']))
      await eventually(async () => (await run.operation.now()).step?.startsWith('running the command'))
      await platform.restartKilled(role)
      expect(await run.operation.end()).toMatchObject({ state: 'succeeded' })
      expect(await apps.runs(app.id, String(body['id']))).toMatchObject([{ exit_code: 0, output: 'run\n' }])
      await remove(app)
    },
  )

  test('fails if its host worker is killed, and its command is ended', async () => {
    const app = await apps.make()
    const { body } = await apps.addTask(app.id, { command: 'sleep 3601' })
    const run = await apps.runTask(app.id, String(body['id']))
    await eventually(() => sleeping('3601'))
    await platform.restartKilled('host')
    expect(await run.operation.end()).toMatchObject({ state: 'failed' })
    expect(await sleeping('3601')).toBe(false)
    expect(await apps.runs(app.id, String(body['id']))).toMatchObject([{ status: 'failed', exit_code: null }])
    await remove(app)
  })
})

test.each(sampled(roles, 1))('an artifact is unpacked whole if %s is killed meanwhile', async (role) => {
  const content = randomBytes(8 * 1024 * 1024)
  const { id, operation } = await apps.push(
    'shop',
    await archiveOf({ first: 'first', content, last: 'last' }),
  )
  await eventually(async () => (await apps.artifact(id))['status'] !== 'staging') // `pushing` is soon over
  await platform.restartKilled(role)
  expect(await operation.end()).toMatchObject({ state: 'succeeded' })
  expect(await apps.artifact(id)).toMatchObject({ status: 'ready', files: 3 })
  const machine = server.workers[0]?.machine_id ?? ''
  const { host_id } = await tenant.owner.containers.get(machine)
  const sum = 'cd /opt/apps/shop && cat first content last | sha256sum; ls /opt/apps/.versions/shop'
  const stream = await makeEngine(testPorts, host_id ?? '').pipe(machine, ['sh', '-c', sum])
  stream.end()
  const wanted = createHash('sha256').update('first').update(content).update('last').digest('hex')
  expect((await text(stream)).split('\n').filter(Boolean)).toEqual([`${wanted}  -`, id])
})

/** Whether an application runs `sleep` for this time. */
async function sleeping(time: string): Promise<boolean> {
  const inner = await innerEngine(tenant.owner, server.workers[0]?.machine_id ?? '')
  for (const { Id } of await inner.listContainers()) {
    const { Processes } = (await inner.getContainer(Id).top()) as { Processes: string[][] }
    if (Processes.some((fields) => fields.at(-1) === `sleep ${time}`)) return true
  }
  return false
}
