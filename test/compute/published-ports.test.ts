import { expect, test } from '@jest/globals'
import { holdPort } from '../support/held-port.ts'
import { mistakeAt } from '../support/refusals.ts'
import { sampled } from '../support/sampled.ts'
import { layout, publishedPort } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'

// A tenant asks for host ports that are not for tenants: of the platform, and outside the hosts' range.

const notForTenants = {
  'of VXLAN': 4789,
  'of VPCs between the hosts here': layout.vxlanPort,
  'of the tunnel between them': layout.tunnelPort,
  'of the API': layout.apiPort,
  'of a host’s data plane': layout.hostPort,
  'of MongoDB': layout.mongodbPort,
  'of Temporal': layout.temporalPort,
  'that is usual for Docker': 2375,
  'beyond the range': publishedPort(-1),
}

test.each(sampled(Object.entries(notForTenants), 3))(
  'a tenant cannot publish the port %s',
  async (_, port) => {
    const { owner, containers } = await makeTenant()
    for (const protocol of ['tcp', 'udp']) {
      const ports = [{ container_port: 80, protocol, host_port: port }]
      const body = { name: `port-${protocol}`, image: 'busybox', cpu_cores: 0.1, memory_mib: 16, ports }
      expect(await owner.ask('POST', '/api/v1/containers', body)).toMatchObject(
        mistakeAt('/ports/0/host_port'),
      )
    }
    const { id } = await containers.make({ start: false })
    const ports = [{ container_port: 80, host_port: port }]
    expect(await owner.ask('PUT', `/api/v1/containers/${id}`, { ports })).toMatchObject(
      mistakeAt('/ports/0/host_port'),
    )
  },
)

test('a tenant publishes a requested port of the range', async () => {
  const { containers } = await makeTenant()
  const { port, held } = await holdPort(83)
  held.close()
  const ports = [{ container_port: 80, host_port: port }]
  expect(await containers.make({ ports })).toMatchObject({ ports: [{ host_port: port }] })
})
