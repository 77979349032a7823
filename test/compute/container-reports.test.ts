import { expect, test } from '@jest/globals'
import { HostReport } from '../../lib/host-protocol.ts'
import { Host } from '../../models/compute/hosts.ts'
import { observe } from '../../models/compute/observe.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { makeTenant } from '../support/tenants.ts'

// A report that leaves out a container. It leaves out all else on the host too, of which the platform then begins repairs.

test('a report that began before its container was created does not end the container', async () => {
  const tenant = await makeTenant()
  const { id, host_id } = await tenant.containers.make()
  // A record that has just changed is left to the next report.
  await eventually(async () => {
    const { updated_at } = await tenant.containers.get(id)
    return Date.now() - Date.parse(String(updated_at)) > 2_500
  })
  const host = await Host.findById(host_id).orFail().lean()
  const withoutIt = (age_ms: number) =>
    observe(
      host._id,
      HostReport.parse({
        data_plane_url: host.data_plane_url,
        data_plane_certificate: host.data_plane_certificate,
        address: host.address,
        capacity: host.capacity,
        engine: host.engine,
        machines: host.machines,
        kinds: host.kinds,
        underlay_address: host.underlay_address,
        tunnel_key: host.tunnel_key,
        published_ports: host.published_ports,
        things: [],
        unseen: [],
        age_ms,
      }),
    )
  await withoutIt(60_000)
  expect(await tenant.containers.activity(id)).toEqual([])
  await withoutIt(0)
  const [repair] = await tenant.containers.activity(id)
  expect(repair).toMatchObject({ kind: 'repair', message: expect.stringMatching(/was missing/) })
})
