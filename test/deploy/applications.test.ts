import { setTimeout as delay } from 'node:timers/promises'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { loadAppImages } from '../support/app-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { type ApplicationBody, applicationsOf } from '../support/clients/applications.ts'
import { eventsOf } from '../support/clients/events.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { innerEngine, signalInnerEngine } from '../support/machines-inside.ts'
import { sampled } from '../support/sampled.ts'
import { stackSettings } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit, visitors } from '../support/visits.ts'

let tenant: TestTenant
let server: DeployServerBody
let apps: ReturnType<typeof applicationsOf>
let told: (app: ApplicationBody) => Promise<string[]>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_count: 2 })
  await loadAppImages(tenant.owner, server)
  apps = applicationsOf(tenant.owner, server.id)
  const events = eventsOf(tenant.owner, server.id)
  // Nothing is delivered there: the log has what was told.
  const { id } = await events.make({ url: 'http://localhost:9/' })
  told = async ({ name }) =>
    (await events.deliveries(id, `&q=${name}&order=asc`)).map(({ kind, message }) => `${kind}: ${message}`)
})

const unique = (): string => `app-${newId().slice(-12)}`
const saysOf = async (url: string): Promise<string> => (await visit(url)).text

/** The containers that run on the workers. */
async function running(): Promise<{ Id: string; Labels: Record<string, string> }[]> {
  const lists = server.workers.map(async ({ machine_id }) =>
    (await innerEngine(tenant.owner, machine_id)).listContainers(),
  )
  return (await Promise.all(lists)).flat()
}

/** The deployments whose containers run, for each container. One that is removed has time to end. */
const containers = async (): Promise<string[]> =>
  (await running()).map(({ Labels }) => Labels['keelson.deployment'] ?? '')

async function signalEngines(name: string): Promise<void> {
  const nodes = [server.control_plane, ...server.workers].flatMap((node) => node ?? [])
  await Promise.all(nodes.map(({ machine_id }) => signalInnerEngine(tenant.owner, machine_id, name)))
}

describe('an application', () => {
  test('is created, deployed and reached at its URL', async () => {
    const app = await apps.make({ name: 'shop', envs: { GREETING: 'hello' } })
    expect(app).toMatchObject({ status: 'running', uuid: app.id, tag: 'v1', deploying_id: null })
    expect(new URL(app.url).hostname).toMatch(/^shop\..*\.localhost$/)
    expect(await saysOf(app.url)).toBe('v1 hello')
    const [deployment] = await apps.deployments(`&app_id=${app.id}`)
    expect(deployment).toMatchObject({
      number: 1,
      kind: 'deploy',
      status: 'succeeded',
      app: 'shop',
      tag: 'v1',
    })
    expect(deployment?.phases.map(({ phase }) => phase)).toEqual([
      'queued',
      'starting',
      'checking',
      'switching',
    ])
    for (const { duration_ms } of deployment?.phases ?? []) expect(duration_ms).toBeGreaterThanOrEqual(0)
    const { log } = await apps.deployment(deployment?.id ?? '')
    expect(log.map(({ line }) => line)).toContain('waiting until the release serves')
    expect(await told(app)).toEqual(['application.deployed: shop v1 was deployed'])
  })

  test('gets a new tag and an old one without a failed request', async () => {
    const app = await apps.make({ replicas: 2, health_check: { path: '/health' } })
    const load = visitors(app.url)
    await (await apps.deploy(app.id, { tag: 'v2', message: 'the second' })).operation.success()
    expect(await saysOf(app.url)).toBe('v2')
    await (await apps.deploy(app.id, { tag: 'v1' })).operation.success()
    expect(await saysOf(app.url)).toBe('v1')
    await (await apps.restart(app.id)).operation.success()
    await load.stop()
    expect(load.failures).toEqual([])
    expect([...load.answers.keys()].toSorted()).toEqual(['v1', 'v2'])
    expect(await apps.get(app.id)).toMatchObject({ tag: 'v1', status: 'running' })
    const deployments = await apps.deployments(`&app_id=${app.id}&sort_by=number&order=asc`)
    expect(deployments).toMatchObject([
      { number: 1 },
      { number: 2, tag: 'v2', message: 'the second' },
      { number: 3, tag: 'v1' },
      { number: 4, kind: 'restart', status: 'succeeded' },
    ])
    // Only the last release is left, on both workers.
    const ids = new Set(deployments.map(({ id }) => id))
    await eventually(async () => {
      const left = (await containers()).filter((id) => ids.has(id))
      return left.length === 2 && left.every((id) => id === deployments[3]?.id)
    })
  })

  test.each(
    sampled<[string, string, { within_sec?: number; path?: string }, string]>(
      [
        ['ends at once', 'crash', {}, 'Its command ended with exit code 3'],
        ['does not listen', 'silent', { within_sec: 30 }, 'nothing listens on its port'],
        [
          'answers its check with 404',
          'v2',
          { within_sec: 30, path: '/nothing' },
          'GET /nothing does not answer',
        ],
        ['does not exist', 'missing', {}, 'The image demo:missing does not exist'],
      ],
      2,
    ),
  )('goes back by itself from a release that %s', async (_, tag, check, why) => {
    const app = await apps.make()
    await apps.change(app.id, { health_check: check })
    const load = visitors(app.url, 1)
    const { id, operation } = await apps.deploy(app.id, { tag })
    expect(await operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'service_failed', detail: expect.stringContaining(why) },
    })
    await load.stop()
    expect(load.failures).toEqual([])
    expect([...load.answers.keys()]).toEqual(['v1'])
    expect(await apps.get(app.id)).toMatchObject({
      status: 'running',
      deployment_id: expect.not.stringMatching(id),
    })
    expect(await apps.deployment(id)).toMatchObject({
      status: 'failed',
      status_reason: expect.stringContaining(why),
    })
    await eventually(async () => !(await containers()).includes(id))
    const reason = expect.stringContaining(why)
    expect(await told(app)).toEqual([
      expect.stringMatching(/^application\.deployed: /),
      expect.stringMatching(
        new RegExp(`^application\\.deploy_failed: ${app.name} ${tag} was not deployed: `),
      ),
      expect.stringMatching(/^application\.rolled_back: .* was taken back, and v1 serves on: /),
    ])
    expect((await told(app)).slice(1)).toEqual([reason, reason])
  })

  testDrawn('goes back from a release without a port that ends soon', async () => {
    const app = await apps.make({ port: null, command: ['sleep', '600'] })
    await apps.change(app.id, { command: ['sh', '-c', 'sleep 1; exit 3'] })
    const { id, operation } = await apps.deploy(app.id)
    expect(await operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'service_failed', detail: expect.stringContaining('exit code 3') },
    })
    expect(await apps.get(app.id)).toMatchObject({
      status: 'running',
      deployment_id: expect.not.stringMatching(id),
    })
  })

  testDrawn('keeps serving when a deployment is cancelled', async () => {
    const app = await apps.make()
    const load = visitors(app.url)
    const { id, operation } = await apps.deploy(app.id, { tag: 'silent' })
    await eventually(async () => (await apps.deployment(id)).phases.some(({ phase }) => phase === 'checking'))
    expect(await apps.cancel(id)).toMatchObject({ status: 202 })
    expect((await operation.end()).state).toBe('cancelled')
    expect(await apps.deployment(id)).toMatchObject({ status: 'cancelled' })
    expect(await saysOf(app.url)).toBe('v1')
    await load.stop()
    expect(load.failures).toEqual([])
    expect([...load.answers.keys()]).toEqual(['v1'])
    expect(await told(app)).toHaveLength(1)
    expect(await apps.cancel(id)).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
  })

  testDrawn(
    'cannot be cancelled once the release serves, and repeats by a restart what serves then',
    async () => {
      const app = await apps.make()
      const { id, operation } = await apps.deploy(app.id, { tag: 'v2' })
      const restart = await apps.restart(app.id)
      expect(await apps.deployment(restart.id)).toMatchObject({ tag: 'v1' })
      await eventually(async () => (await apps.get(app.id)).deployment_id === id)
      const refused = { status: 409, body: { code: 'state_conflict', state: 'serving' } }
      expect(await apps.cancel(id)).toMatchObject(refused)
      const { workflow_id } = await operation.now()
      // As one that was accepted a moment earlier.
      await temporalClient(stackSettings()).workflow.getHandle(workflow_id).cancel()
      await operation.success()
      await restart.operation.success()
      expect(await apps.deployment(restart.id)).toMatchObject({ tag: 'v2', kind: 'restart' })
      expect(await saysOf(app.url)).toBe('v2')
    },
  )

  testDrawn(
    'releases the newest of several deployments; those that waited say that they were superseded',
    async () => {
      const app = await apps.make()
      const slow = await apps.deploy(app.id, { tag: 'silent' })
      await eventually(async () => (await apps.deployment(slow.id)).status === 'deploying')
      const waiting = [await apps.deploy(app.id, { tag: 'v2' }), await apps.deploy(app.id, { tag: 'crash' })]
      const newest = await apps.deploy(app.id, { tag: 'v3' })
      await apps.cancel(slow.id)
      await newest.operation.success()
      for (const { id, operation } of waiting) {
        expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'superseded' } })
        expect(await apps.deployment(id)).toMatchObject({ status: 'superseded' })
      }
      expect(await saysOf(app.url)).toBe('v3')
      expect((await told(app)).map((one) => one.split(':')[0])).toEqual([
        'application.deployed',
        'application.deployed',
      ])
    },
  )

  testDrawn('gets its environment by a deployment, and has that of then when one is promoted', async () => {
    const [one, two] = [`one ${newId()}`, `two ${newId()}`]
    const app = await apps.make({ envs: { GREETING: one, OTHER: 'x' } })
    const [first] = await apps.deployments(`&app_id=${app.id}`)
    expect(await apps.setEnvs(app.id, { GREETING: two })).toMatchObject({
      status: 200,
      body: { envs: { GREETING: two, OTHER: 'x' } },
    })
    expect(await saysOf(app.url)).toBe(`v1 ${one}`)
    await (await apps.deploy(app.id)).operation.success()
    expect(await saysOf(app.url)).toBe(`v1 ${two}`)
    const other = `/api/v1/deploy-servers/${server.id}/applications/${app.id}/envs/OTHER`
    expect(await tenant.owner.ask('DELETE', other)).toMatchObject({ status: 204 })
    expect(await tenant.owner.ask('DELETE', other)).toMatchObject({ status: 404 })
    expect(await apps.envs(app.id)).toEqual({ GREETING: two })
    await (await apps.deploy(app.id, { deployment_id: first?.id ?? '' })).operation.success()
    expect(await saysOf(app.url)).toBe(`v1 ${one}`)
  })

  test('has an audit event of each read of its environment', async () => {
    const app = await apps.make({ envs: { GREETING: 'hello' } })
    expect(await apps.envs(app.id)).toEqual({ GREETING: 'hello' })
    const path = `/api/v1/deploy-servers/${server.id}/applications/${app.id}/envs`
    expect(await tenant.owner.get(`/api/v1/audit-events?path=${path}`)).toMatchObject({
      items: [
        {
          action: 'GET /api/v1/deploy-servers/{id}/applications/{app}/envs',
          actor_kind: 'user',
          outcome: 'succeeded',
        },
      ],
      total: 1,
    })
  })

  testDrawn('names the commit of a release, also when that is repeated', async () => {
    const app = await apps.make()
    const [first] = await apps.deployments(`&app_id=${app.id}`)
    const commit = '3f2a91c0'
    await (await apps.deploy(app.id, { tag: 'v2', commit })).operation.success()
    await (await apps.restart(app.id)).operation.success()
    await (await apps.deploy(app.id, { deployment_id: first?.id })).operation.success()
    const all = await apps.deployments(`&app_id=${app.id}&sort_by=number&order=asc`)
    expect(all.map((one) => one['commit'])).toEqual([null, commit, commit, null])
    const path = `/api/v1/deploy-servers/${server.id}/applications/${app.id}/deploy`
    const refused = await tenant.owner.ask('POST', path, { commit: 'main' })
    expect(refused).toMatchObject({ status: 422, body: { errors: [{ pointer: '/commit' }] } })
  })

  testDrawn(
    'has the status and the URL of the release that serves, whatever port the next one has',
    async () => {
      const [app, worker] = [await apps.make(), await apps.make({ tag: 'silent', port: null })]
      expect(worker).toMatchObject({ status: 'running', url: null })
      await apps.change(app.id, { port: null })
      await apps.change(worker.id, { port: 3000 })
      expect(await apps.get(app.id)).toMatchObject({ status: 'running', url: app.url, port: null })
      expect(await apps.get(worker.id)).toMatchObject({ status: 'running', url: null, port: 3000 })
      await (await apps.delete(worker.id)).operation.success()
    },
  )

  test('is stopped, started and deleted', async () => {
    const app = await apps.make()
    await (await apps.stop(app.id)).operation.success()
    expect(await apps.get(app.id)).toMatchObject({ status: 'stopped' })
    expect((await visit(app.url)).status).not.toBe(200)
    await (await apps.deploy(app.id)).operation.success()
    expect(await saysOf(app.url)).toBe('v1')
    await (await apps.delete(app.id)).operation.success()
    expect((await visit(app.url)).status).not.toBe(200)
    expect(
      await tenant.owner.ask('GET', `/api/v1/deploy-servers/${server.id}/applications/${app.id}`),
    ).toMatchObject({
      status: 404,
    })
    expect(await apps.deployments(`&app_id=${app.id}`)).toEqual([])
  })

  test.each([
    ['a name that is taken', { name: 'shop' }, 409, 'name_taken'],
    ['an image with a tag', { image: 'demo:v1' }, 422, 'invalid_input'],
    ['a path that is none', { health_check: { path: 'health' } }, 422, 'invalid_input'],
    ['no replicas', { replicas: 0 }, 422, 'invalid_input'],
  ])('is refused with %s', async (_, over, status, code) => {
    const body = { name: unique(), image: 'demo', ...over }
    const answer = await tenant.owner.ask('POST', `/api/v1/deploy-servers/${server.id}/applications`, body)
    expect(answer).toMatchObject({ status, body: { code } })
  })

  test('for which the workers have no room fails to deploy, and says so', async () => {
    const { id, operation } = await apps.create({ memory_mib: 400, replicas: 2 })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'no_room' } })
    const app = await apps.get(id)
    expect(app.status).toBe('created')
    expect(await told(app)).toEqual([
      expect.stringMatching(/^application\.deploy_failed: .* was not deployed: /),
    ])
  })
})

testDrawn('applications run on while the engines of all machines stand still', async () => {
  const [app, other] = [await apps.make({ replicas: 2 }), await apps.make()]
  const others = async (): Promise<string[]> =>
    (await running())
      .filter(({ Labels }) => Labels['keelson.deployment'] === other.deployment_id)
      .map(({ Id }) => Id)
  const before = await others()
  const load = visitors(app.url, 1)
  await signalEngines('STOP')
  await delay(20_000) // longer than a Swarm by default waits for its members
  await signalEngines('CONT')
  await (await apps.deploy(app.id, { tag: 'v2' })).operation.success()
  await load.stop()
  expect(load.failures).toEqual([])
  expect(before).toHaveLength(1)
  expect(await others()).toEqual(before)
  await (await apps.delete(app.id)).operation.success()
  await (await apps.delete(other.id)).operation.success()
})

testDrawn('applications leave a worker that is removed, without a failed request', async () => {
  // One worker has no room for all that the tests before left.
  const before = await apps.list()
  await Promise.all(before.map(async ({ id }) => (await apps.delete(id)).operation.success()))
  const app = await apps.make({ replicas: 2 })
  const load = visitors(app.url)
  await (await tenant.owner.deployServers.update(server.id, { worker_count: 1 })).operation.success()
  await load.stop()
  expect(load.failures).toEqual([])
  expect(await apps.get(app.id)).toMatchObject({ status: 'running' })
  const [last] = await apps.deployments(`&app_id=${app.id}&sort_by=number`)
  expect(last).toMatchObject({ kind: 'move', status: 'succeeded', requested_by: expect.anything() })
})
