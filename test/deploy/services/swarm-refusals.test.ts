import { beforeAll, describe, expect, test } from '@jest/globals'
import { Service } from '../../../models/deploy/services.ts'
import { Storage } from '../../../models/deploy/storages.ts'
import { loadAppImages } from '../../support/app-images.ts'
import type { DeployServerBody } from '../../support/client.ts'
import { type ServiceBody, servicesOf } from '../../support/clients/services.ts'
import { eventually } from '../../support/eventually.ts'
import { leftOfServices } from '../../support/services-left.ts'
import { makeTenant, type TestTenant } from '../../support/tenants.ts'

// What a Swarm refuses. The tests have a deploy server of their own: a service whose restart is refused stays wanted, and is tried
// again by each change of the others.

let tenant: TestTenant
let server: DeployServerBody
let services: ReturnType<typeof servicesOf>
beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  await loadAppImages(tenant.owner, server)
  services = servicesOf(tenant.owner, server.id)
})

const idle = 'image: "demo:v1", mem_limit: 16m, stop_grace_period: 1s, command: [sleep, "100000"]'

const storagesOf = (id: string): string => `${services.path}/${id}/storages`
const containersOf = async (id: string): Promise<number> =>
  (await leftOfServices(tenant.owner, server, id)).containers
const wantedOf = async (id: string): Promise<unknown> =>
  (await Service.findOne({ _id: id, tenant_id: tenant.id }).lean())?.wanted
const isRefused = async (id: string, verb: 'start' | 'restart'): Promise<void> => {
  const { operation } = await services.do(id, verb)
  expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'engine_refused' } })
}

test('a service has environment variables, host names and names that a Swarm reads otherwise', async () => {
  const docker_compose = `
services:
  app.one:
    image: demo:v1
    mem_limit: 16m
    hostname: "h{{x"
    environment: { SHOWN: "{{ x }} {{.Node.Hostname}} {{{{{y}}} {{/* z */}} {{" }
    command: [sh, -c, 'echo "$$SHOWN"; hostname; exec sleep 100000']
    stop_grace_period: 1s
    networks: [a_network_of_many_letters, dots.and_]
networks: { a_network_of_many_letters: , dots.and_: }
`
  const { id } = await services.make({ docker_compose })
  const lines = await eventually(async () => {
    const found = await services.logs(id)
    return found.length >= 2 && found.map(({ line }) => line)
  })
  expect(lines).toEqual(['{{ x }} {{.Node.Hostname}} {{{{{y}}} {{/* z */}} {{', 'h{{x'])
  await (await services.delete(id)).operation.success()
})

describe('what is mounted at one path is refused', () => {
  let service: ServiceBody

  test('in a storage where the text mounts something', async () => {
    const docker_compose = `services: { app: { ${idle}, volumes: ["data:/data/"], tmpfs: /tmp } }\nvolumes: { data: }`
    service = await services.make({ docker_compose })
    for (const mount_path of ['/data', '/tmp']) {
      const asked = { container: 'app', mount_path }
      const { status, body } = await tenant.owner.ask('POST', storagesOf(service.id), asked)
      expect([status, body['errors']]).toEqual([
        422,
        [{ pointer: '/mount_path', message: 'is taken by the compose file' }],
      ])
    }
    const braces = { container: 'app', mount_path: '/{{x}}' }
    expect((await tenant.owner.ask('POST', storagesOf(service.id), braces)).status).toBe(422)
  })

  test('in a text where a storage is', async () => {
    const asked = { container: 'app', mount_path: '/more' }
    expect((await tenant.owner.ask('POST', storagesOf(service.id), asked)).status).toBe(201)
    const docker_compose = `services:\n  app:\n    { ${idle},\n    tmpfs: /more }`
    const { status, body } = await tenant.owner.ask('PATCH', `${services.path}/${service.id}`, {
      docker_compose,
    })
    expect([status, body['errors']]).toEqual([
      422,
      [{ pointer: '/docker_compose', line: 4, message: expect.stringContaining('a storage of the service') }],
    ])
    await (await services.delete(service.id)).operation.success()
  })
})

/** A storage that a former release took, and the Swarm refuses. */
async function addRefusedStorage({ id }: ServiceBody): Promise<string> {
  const refused = { container: 'app', name: 'refused', mount_path: '/{{x}}' }
  const of = { tenant_id: tenant.id, deploy_server_id: server.id, app_id: id }
  return (await new Storage({ ...of, ...refused }).save())._id
}

describe('a service that the Swarm refuses', () => {
  const docker_compose = `services: { first: { ${idle} }, app: { ${idle}, depends_on: [first] } }`

  test('is not tried again if it did not run before, and starts when it can', async () => {
    const service = await services.make({ docker_compose })
    await (await services.do(service.id, 'stop')).operation.success()
    const storage = await addRefusedStorage(service)
    await isRefused(service.id, 'start')
    expect(await services.get(service.id)).toMatchObject({ status: 'error' })
    expect(await wantedOf(service.id)).toEqual({})
    expect(await containersOf(service.id)).toBe(0)
    const other = await services.make({ docker_compose: `services: { app: { ${idle} } }` })
    await (await services.delete(other.id)).operation.success()
    await Storage.deleteOne({ _id: storage, tenant_id: tenant.id })
    await (await services.do(service.id, 'start')).operation.success()
    expect(await containersOf(service.id)).toBe(2)
    await (await services.delete(service.id)).operation.success()
  })

  test('goes on if it ran before', async () => {
    const service = await services.make({ docker_compose })
    const storage = await addRefusedStorage(service)
    await isRefused(service.id, 'restart')
    expect(await containersOf(service.id)).toBe(2)
    await Storage.deleteOne({ _id: storage, tenant_id: tenant.id })
    await (await services.do(service.id, 'restart')).operation.success()
    await (await services.delete(service.id)).operation.success()
  })

  test('stays ended if it did not run before a change that fails', async () => {
    const service = await services.make({ docker_compose })
    await (await services.do(service.id, 'stop')).operation.success()
    const storage = await addRefusedStorage(service)
    await isRefused(service.id, 'start')
    const { operation } = await services.update(service.id, { docker_compose, envs: { CHANGED: 'yes' } })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'engine_refused' } })
    expect(await wantedOf(service.id)).toEqual({})
    await eventually(async () => (await containersOf(service.id)) === 0)
    await Storage.deleteOne({ _id: storage, tenant_id: tenant.id })
    await (await services.delete(service.id)).operation.success()
  })
})
