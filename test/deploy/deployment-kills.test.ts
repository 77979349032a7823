import { createHash, randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { isDeepStrictEqual } from 'node:util'
import { afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { loadAppImages } from '../support/app-images.ts'
import { archiveOf } from '../support/archives.ts'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { type ApplicationBody, applicationsOf } from '../support/clients/applications.ts'
import { eventsOf } from '../support/clients/events.ts'
import { makeEngine, testPorts } from '../support/containers.ts'
import { eventually } from '../support/eventually.ts'
import { isLong } from '../support/long.ts'
import { innerEngine } from '../support/machines-inside.ts'
import { platform } from '../support/platform.ts'
import { startReceiver } from '../support/receiver.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { isMachine, kill, leftOn, roles, type Victim, victims } from '../support/victims.ts'
import { visit, visitors } from '../support/visits.ts'

// If a process or a machine is killed (-9) while an application is deployed, it ends as requested, no visitor sees it, and
// one release is left. The tests look at the machines' engines and at what visitors get, not only at the records.

/** A deploy server, on which applications are deployed. */
interface Place {
  tenant: TestTenant
  server: DeployServerBody
  apps: ReturnType<typeof applicationsOf>
}

async function makePlace(worker_count: number): Promise<Place> {
  const tenant = await makeTenant()
  const server = await tenant.owner.deployServers.make({ worker_count })
  await loadAppImages(tenant.owner, server)
  return { tenant, server, apps: applicationsOf(tenant.owner, server.id) }
}

let place: Place
/** With two workers, for machines that are killed. In the long form. */
let wide: Place
beforeAll(async () => {
  place = await makePlace(1)
  if (isLong) wide = await makePlace(2)
})

// What a failed test left would count as the next one's.
afterEach(async () => {
  for (const { apps } of isLong ? [place, wide] : [place])
    for (const { id } of await apps.list()) await (await apps.delete(id)).operation.success()
})

const placeOf = (victim: Victim): Place => (isMachine(victim) ? wide : place)

const killIn = (victim: Victim, { tenant, server }: Place, { operation }: Accepted): Promise<void> =>
  kill(victim, tenant.owner, server.id, operation.hasEnded)

const inPhase =
  (name: string) =>
  ({ apps }: Place, { id }: Accepted) =>
    eventually(async () => (await apps.deployment(id)).phases.some(({ phase }) => phase === name))

/** The deployments whose containers run. Swarm ends containers in the background, after the deployment. */
async function running({ tenant, server }: Place = place): Promise<string[]> {
  const found = server.workers.map(async ({ machine_id }) =>
    (await innerEngine(tenant.owner, machine_id)).listContainers(),
  )
  return (await Promise.all(found)).flat().map(({ Labels }) => Labels['keelson.deployment'] ?? '')
}

async function gone(from: Place): Promise<void> {
  await eventually(async () => (await running(from)).length === 0)
  await eventually(async () => (await leftOn(from.tenant.owner, from.server)).length === 0)
}

async function remove(app: ApplicationBody, from = place): Promise<void> {
  await (await from.apps.delete(app.id)).operation.success()
  await gone(from)
}

/** An application with a volume, so on one worker. */
async function makeKeeping({ apps }: Place): Promise<ApplicationBody> {
  const id = await apps.prepare()
  await apps.addStorage(id, '/data')
  await (await apps.deploy(id)).operation.success()
  return apps.get(id)
}

/**
 * It has a replica on each of two workers if a machine is killed, else a volume. A busy machine may take minutes to be back:
 * a release has as long as it can.
 */
const make = (victim: Victim): Promise<ApplicationBody> =>
  isMachine(victim) ? wide.apps.make({ replicas: 2, health_check: { within_sec: 900 } }) : makeKeeping(place)

const visitorCount = 2

/**
 * Visitors see nothing, also if the control plane is killed. A worker that is killed cuts the answers that it has begun, one
 * for each visitor at most: what it has not begun to answer, the load balancer asks the other one.
 */
async function served(load: ReturnType<typeof visitors>, victim: Victim): Promise<void> {
  await load.stop()
  const isCut = (failure: string): boolean => victim === 'w1' && /: (aborted|socket hang up)$/.test(failure)
  expect(load.failures.filter((failure) => !isCut(failure))).toEqual([])
  expect(load.failed).toBeLessThanOrEqual(visitorCount)
}

const moments = {
  'is accepted': async (_: Place, { operation }: Accepted) =>
    eventually(async () => (await operation.now()).state === 'running'),
  'starts the release': inPhase('starting'),
  'checks the release': inPhase('checking'),
  'switches to the release': inPhase('switching'),
  'drains the former release': inPhase('draining'),
}
const points = Object.entries(moments).flatMap(([when, moment]) =>
  victims.map((victim) => ({ victim, when, moment })),
)

describe('a deployment', () => {
  test.each(sampled(points, 3))(
    'completes unseen if $victim is killed when it $when',
    async ({ victim, moment }) => {
      const at = placeOf(victim)
      const app = await make(victim)
      const load = visitors(app.url, visitorCount)
      const deployment = await at.apps.deploy(app.id, { tag: 'v2' })
      await moment(at, deployment)
      await killIn(victim, at, deployment)
      expect(await deployment.operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await served(load, victim)
      expect((await visit(app.url)).text).toBe('v2')
      const all = at.server.workers.map(() => deployment.id)
      await eventually(async () => isDeepStrictEqual(await running(at), all))
      await eventually(async () => (await at.apps.get(app.id)).status === 'running')
      expect(await at.apps.get(app.id)).toMatchObject({ status: 'running', deploying_id: null })
      await remove(app, at)
    },
  )

  test.each(sampled(victims, 1))(
    'that fails is taken back unseen if %s is killed meanwhile',
    async (victim) => {
      const at = placeOf(victim)
      const { tenant, server, apps } = at
      const app = await make(victim)
      const events = eventsOf(tenant.owner, server.id)
      const subscription = await events.make({ url: 'http://localhost:9/' }) // for its log
      await apps.change(app.id, { health_check: { within_sec: 10 } })
      const load = visitors(app.url, visitorCount)
      const deployment = await apps.deploy(app.id, { tag: 'silent' })
      await inPhase('checking')(at, deployment)
      await killIn(victim, at, deployment)
      const ended = await deployment.operation.end()
      expect(ended).toMatchObject({ state: 'failed', error: { code: 'service_failed' } })
      await served(load, victim)
      await eventually(async () => !(await running(at)).includes(deployment.id))
      await eventually(async () => (await apps.get(app.id)).status === 'running')
      expect(await apps.get(app.id)).toMatchObject({ status: 'running', deploying_id: null })
      const told = await events.deliveries(subscription.id, `&q=${app.name}&order=asc`)
      expect(told.map(({ kind }) => kind)).toEqual(['application.deploy_failed', 'application.rolled_back'])
      await events.delete(subscription.id)
      await remove(app, at)
    },
  )
})

const says =
  (words: RegExp) =>
  ({ operation }: Accepted) =>
    operation.says(words)
const deletions = {
  begins: says(/./),
  'ends its containers': says(/removing the application/),
  'destroys its volume': says(/destroying its volumes/),
}
const deletionPoints = Object.entries(deletions).flatMap(([when, moment]) =>
  victims.map((victim) => ({ victim, when, moment })),
)

test.each(sampled(deletionPoints, 1))(
  'the deletion of an application with a volume completes if $victim is killed when it $when',
  async ({ victim, moment }) => {
    const at = placeOf(victim)
    const { id } = await makeKeeping(at)
    const there = await leftOn(at.tenant.owner, at.server)
    expect(there).toEqual([expect.stringMatching(/^cp: app-/), expect.stringMatching(/^w1: /)])
    const deletion = await at.apps.delete(id)
    await moment(deletion)
    await killIn(victim, at, deletion)
    expect(await deletion.operation.end()).toMatchObject({ state: 'succeeded', error: null })
    await gone(at)
  },
)

async function arrivesIfKilled(role: (typeof roles)[number], whileRead: boolean): Promise<void> {
  const receiver = await startReceiver()
  try {
    receiver.replies('/killed', (count) => (whileRead && count === 1 ? null : { status: 204 }))
    const { tenant, server } = place
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
      const { apps } = place
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
    const { apps } = place
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
  const { tenant, server, apps } = place
  const content = randomBytes(8 * 1024 * 1024)
  const name = `shop-${role}` // of one name, the former versions stay
  const { id, operation } = await apps.push(name, await archiveOf({ first: 'first', content, last: 'last' }))
  await eventually(async () => (await apps.artifact(id))['status'] !== 'staging') // `pushing` is soon over
  await platform.restartKilled(role)
  expect(await operation.end()).toMatchObject({ state: 'succeeded' })
  expect(await apps.artifact(id)).toMatchObject({ status: 'ready', files: 3 })
  const machine = server.workers[0]?.machine_id ?? ''
  const { host_id } = await tenant.owner.containers.get(machine)
  const sum = `cd /opt/apps/${name} && cat first content last | sha256sum; ls /opt/apps/.versions/${name}`
  const stream = await makeEngine(testPorts, host_id ?? '').pipe(machine, ['sh', '-c', sum])
  stream.end()
  const wanted = createHash('sha256').update('first').update(content).update('last').digest('hex')
  expect((await text(stream)).split('\n').filter(Boolean)).toEqual([`${wanted}  -`, id])
})

/** Whether an application runs `sleep` for this time. */
async function sleeping(time: string): Promise<boolean> {
  const { tenant, server } = place
  const inner = await innerEngine(tenant.owner, server.workers[0]?.machine_id ?? '')
  for (const { Id } of await inner.listContainers()) {
    const { Processes } = (await inner.getContainer(Id).top()) as { Processes: string[][] }
    if (Processes.some((fields) => fields.at(-1) === `sleep ${time}`)) return true
  }
  return false
}
