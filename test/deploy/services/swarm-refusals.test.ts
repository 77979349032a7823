import { beforeAll, describe, expect, test } from '@jest/globals'
import { loadAppImages } from '../../support/app-images.ts'
import type { DeployServerBody } from '../../support/client.ts'
import { type ServiceBody, servicesOf } from '../../support/clients/services.ts'
import { eventually } from '../../support/eventually.ts'
import { makeTenant, type TestTenant } from '../../support/tenants.ts'

// What a Swarm refuses. The tests have a deploy server of their own: while one of its services is refused, changes of the others
// may fail.

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
