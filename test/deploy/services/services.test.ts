import { beforeAll, describe, expect, test } from '@jest/globals'
import { text } from 'node:stream/consumers'
import { loadAppImages, loadBaseImage } from '../../support/app-images.ts'
import type { DeployServerBody } from '../../support/client.ts'
import { buildsOf } from '../../support/clients/builds.ts'
import { servicesOf, type ServiceBody } from '../../support/clients/services.ts'
import { composed } from '../../support/composed.ts'
import { docker } from '../../support/containers.ts'
import { testDrawn } from '../../support/drawn.ts'
import { eventually } from '../../support/eventually.ts'
import { innerEngine } from '../../support/machines-inside.ts'
import { leftOfServices } from '../../support/services-left.ts'
import { sharedServer } from '../../support/shared-server.ts'
import type { TestTenant } from '../../support/tenants.ts'
import { visit } from '../../support/visits.ts'

// Services: containers that belong together, from a compose file.

let tenant: TestTenant
let server: DeployServerBody
let services: ReturnType<typeof servicesOf>
beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  await loadAppImages(tenant.owner, server)
  services = servicesOf(tenant.owner, server.id)
})

const inner = () => innerEngine(tenant.owner, server.workers[0]?.machine_id ?? '')
const left = () => leftOfServices(tenant.owner, server)

const urlOf = (service: ServiceBody, container = 'app'): string =>
  service.containers.find(({ name }) => name === container)?.ports[0]?.url ?? ''
const look = async (service: ServiceBody): Promise<string> =>
  (await visit(urlOf(service), '/cgi-bin/look')).text
const stateOf = (service: ServiceBody) =>
  Object.fromEntries(service.containers.map(({ name, state }) => [name, state]))

describe('a service of three containers', () => {
  let service: ServiceBody

  test('starts them in their order, and is reached at its URL', async () => {
    service = await services.make({ docker_compose: composed() })
    expect(service).toMatchObject({ status: 'running', worker: 'w1', volumes: ['data'] })
    expect(stateOf(service)).toEqual({ app: 'running', store: 'running', worker: 'running' })
    expect(await look(service)).toBe('hello v1 0')
    // The app began when the store was healthy, so that its name was known.
    expect((await visit(urlOf(service), '/first')).text).toBe('0')
    expect((await tenant.owner.get<{ total: number }>(services.path)).total).toBe(1)
  })

  test('has the output of each container', async () => {
    const lines = await eventually(async () => {
      const found = await services.logs(service.id)
      return found.length >= 2 && found
    })
    expect(lines.map(({ container, line }) => `${container}: ${line}`).toSorted()).toEqual([
      'store: store begins',
      'worker: worker begins',
    ])
    expect(await services.logs(service.id, '?container=worker')).toMatchObject([{ line: 'worker begins' }])
    const { status } = await tenant.owner.ask('GET', `${services.path}/${service.id}/logs?container=none`)
    expect(status).toBe(404)
  })

  test('runs tasks in the container that they name, and keeps its volume over a restart', async () => {
    expect(await services.run(service.id, 'store', 'echo 7 >/data/count; cat /data/count')).toBe('7')
    const wrong = await services.addTask(service.id, { container: 'none', command: 'true' })
    expect([wrong.status, wrong.body['errors']]).toEqual([
      422,
      [{ pointer: '/container', message: expect.any(String) }],
    ])
    await (await services.do(service.id, 'restart')).operation.success()
    expect(await look(service)).toBe('hello v1 7')
  })

  test('says what a new text changes, and takes it over', async () => {
    const docker_compose = composed({ greeting: 'welcome', tag: 'v2' })
    const wanted = {
      containers: [{ container: 'app', change: 'changed', fields: ['image', 'env.GREETING'] }],
      volumes: { added: [], removed: [] },
    }
    const { generated } = await services.compose(service.id)
    expect(await services.preview(service.id, { docker_compose })).toEqual(wanted)
    expect(await look(service)).toBe('hello v1 7')
    const { body, operation } = await services.update(service.id, { docker_compose })
    expect(body).toMatchObject({ id: service.id, operation_id: operation.id, changes: wanted })
    await operation.success()
    expect(await look(service)).toBe('welcome v2 7')
    const after = await services.compose(service.id)
    expect(after).toMatchObject({ docker_compose, generated })
    expect(generated['SERVICE_PASSWORD_APP']).toMatch(/^\w{32}$/)
  })

  test('takes back a new text that does not run', async () => {
    const former = urlOf(service)
    const extra = `  broken: { image: "demo:none", mem_limit: 16m, depends_on: [store] }`
    const docker_compose = composed({ extra, ports: [8080, 3000] })
    const { operation } = await services.update(service.id, { docker_compose })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'service_failed' } })
    // A look at the containers that was taken while they changed says that some do not run.
    const now = await eventually(async () => {
      const seen = await services.get(service.id)
      return seen.status === 'running' && seen
    })
    expect(now.status_reason).toMatch(/The container broken does not run: The image demo:none/)
    expect(Object.keys(stateOf(now)).toSorted()).toEqual(['app', 'store', 'worker'])
    await eventually(async () => (await left()).containers === 3)
    expect(urlOf(now)).toBe(former)
    expect(now.containers.find(({ name }) => name === 'app')?.ports).toMatchObject([{ port: 3000 }])
    expect(await look(service)).toBe('welcome v2 7')
  })

  test('stops, and starts with its volume', async () => {
    await (await services.do(service.id, 'stop')).operation.success()
    expect(await services.get(service.id)).toMatchObject({ status: 'stopped' })
    expect(await left()).toMatchObject({ containers: 0, volumes: 1 })
    expect((await visit(urlOf(service))).status).toBe(404)
    await (await services.do(service.id, 'start')).operation.success()
    expect(await look(service)).toBe('welcome v2 7')
  })

  test('leaves its volumes to the next service of its name, unless they are deleted', async () => {
    const { generated } = await services.compose(service.id)
    await (await services.delete(service.id, false)).operation.success()
    await eventually(async () => (await left()).networks === 0)
    expect(await left()).toEqual({ containers: 0, volumes: 1, networks: 0, files: 0 })
    const next = await services.make({ name: service.name, docker_compose: composed() })
    expect((await services.compose(next.id)).generated).toEqual(generated)
    expect(await look(next)).toBe('hello v1 7')
    await (await services.delete(next.id)).operation.success()
    expect(await left()).toEqual({ containers: 0, volumes: 0, networks: 0, files: 0 })
    expect((await tenant.owner.ask('GET', `${services.path}/${next.id}`)).status).toBe(404)
  })
})

test('a service runs an image that was built on its deploy server, until a change takes a newer build', async () => {
  await loadBaseImage(tenant.owner, server)
  const builds = buildsOf(tenant.owner, server.id)
  const build = (answer: string) => {
    const serving = `FROM busybox\nRUN mkdir /site && echo ${answer} >/site/index.html\nCMD exec httpd -f -p 80 -h /site`
    return builds.make('site', { Dockerfile: serving }, { tag: 'now' })
  }
  const first = await build('first')
  const docker_compose = 'services: { app: { image: "site:now", mem_limit: 16m, ports: [80] } }'
  const service = await services.make({ docker_compose })
  const shown = async () => (await visit(urlOf(service))).text.trim()
  expect(await shown()).toBe('first')
  for (const answer of ['second', 'third', 'fourth', 'fifth']) await build(answer)
  await (await services.do(service.id, 'restart')).operation.success()
  expect(await shown()).toBe('first')
  const changed = [{ container: 'app', change: 'changed', fields: ['image'] }]
  expect((await services.preview(service.id, { envs: {} })).containers).toEqual(changed)
  await (await services.update(service.id, { envs: {} })).operation.success()
  expect(await shown()).toBe('fifth')
  // Nothing needs the first build any more.
  await build('sixth')
  await eventually(async () => (await builds.get(first.id)).image_state === 'gone')
  await (await services.delete(service.id)).operation.success()
})

test('a port that is listened at late is reached when the start and the restart have ended', async () => {
  const command = '[sh, -c, "sleep 4; exec httpd -f -p 3000 -h /etc"]'
  const late = `{ image: "demo:v1", mem_limit: 16m, ports: [3000], stop_grace_period: 1s, command: ${command} }`
  const service = await services.make({ docker_compose: `services: { app: ${late} }` })
  const ask = async () => (await visit(urlOf(service), '/passwd')).status
  expect(await ask()).toBe(200)
  await (await services.do(service.id, 'restart')).operation.success()
  expect(await ask()).toBe(200)
  await (await services.delete(service.id)).operation.success()
})

test('a port at which nothing listens does not fail its service, and the deploy server says so', async () => {
  const docker_compose = 'services: { app: { image: "demo:silent", mem_limit: 16m, ports: [3000] } }'
  const service = await services.make({ docker_compose })
  const { hostname } = new URL(urlOf(service))
  const path = `/api/v1/deploy-servers/${server.id}/activity`
  const { items } = await tenant.owner.get<{ items: { kind: string; message: string }[] }>(path)
  expect(items.filter(({ message }) => message.includes(hostname))).toMatchObject([
    {
      kind: 'target_not_reached',
      message: expect.stringMatching(/it refused the connection or cannot be reached$/),
    },
  ])
  await (await services.delete(service.id)).operation.success()
})

testDrawn('the template of a static site runs', async () => {
  const engine = await inner()
  await docker.getImage('busybox:latest').tag({ repo: 'busybox', tag: '1.36.1' })
  await text(await engine.loadImage(await docker.getImage('busybox:1.36.1').get()))
  const service = await services.make({ type: 'static-site', envs: { PAGE_TITLE: 'My page' } })
  expect((await visit(urlOf(service, 'web'))).text).toContain('<h1>My page</h1>')
  const storage = { mount_path: '/uploads', container: 'web' }
  const added = await tenant.owner.ask('POST', `${services.path}/${service.id}/storages`, storage)
  expect([added.status, added.body['container']]).toEqual([201, 'web'])
  await (await services.do(service.id, 'restart')).operation.success()
  expect(await services.run(service.id, 'web', 'echo kept >/uploads/file; cat /uploads/file')).toBe('kept')
  const path = `${services.path}/${service.id}/storages/${String(added.body['id'])}`
  expect((await tenant.owner.ask('DELETE', path)).status).toBe(204)
  await (await services.do(service.id, 'restart')).operation.success()
  expect((await left()).volumes).toBe(0)
  await (await services.delete(service.id)).operation.success()
  expect((await left()).files).toBe(0)
})

describe('a service is refused', () => {
  test('with the line of each fault of its text', async () => {
    const docker_compose = 'services:\n  web:\n    image: demo:v1\n    privileged: true\n    pid: host\n'
    const { status, body } = await services.ask({ docker_compose })
    expect(status).toBe(422)
    expect(body['errors']).toEqual([
      { pointer: '/docker_compose', line: 4, message: expect.stringContaining('services.web.privileged') },
      { pointer: '/docker_compose', line: 5, message: expect.stringContaining('services.web.pid') },
    ])
  })

  test.each([
    ['an unknown template', { type: 'none' }],
    ['neither a template nor a text', {}],
    ['both', { type: 'static-site', docker_compose: 'services: {}' }],
    ['a variable without a value', { docker_compose: 'services: { a: { image: "a:${TAG}" } }' }],
  ])('with %s', async (_, body) => {
    expect((await services.ask(body)).status).toBe(422)
  })

  test('without room for its memory', async () => {
    const docker_compose = 'services: { big: { image: "demo:v1", mem_limit: 4g } }'
    const { id, operation } = await services.create({ docker_compose })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'no_room' } })
    expect(await services.get(id)).toMatchObject({ status: 'error' })
    await (await services.delete(id)).operation.success()
  })

  test('that must not be larger than a body', async () => {
    const { status } = await services.ask({ docker_compose: `x: ${'a'.repeat(5 * 1024 ** 2)}` })
    expect(status).toBe(413)
  })
})

test('a service whose container fails keeps its output, and is deleted', async () => {
  const docker_compose = `
services:
  migrate: { image: "demo:crash", restart: "no", mem_limit: 16m }
  app:
    image: demo:v1
    mem_limit: 16m
    depends_on: { migrate: { condition: service_completed_successfully } }
`
  const { id, operation } = await services.create({ docker_compose })
  expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'service_failed' } })
  const failed = await services.get(id)
  expect(failed.status).toBe('error')
  expect(failed.status_reason).toBe('The container migrate does not run: Its command ended with exit code 3')
  expect(await services.logs(id)).toMatchObject([{ container: 'migrate', line: 'cannot go on' }])
  await (await services.delete(id)).operation.success()
  expect((await left()).containers).toBe(0)
})
