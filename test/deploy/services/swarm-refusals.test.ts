import { beforeAll, expect, test } from '@jest/globals'
import { loadAppImages } from '../../support/app-images.ts'
import type { DeployServerBody } from '../../support/client.ts'
import { servicesOf } from '../../support/clients/services.ts'
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
