import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { closeConsoles, openConsole } from '../support/console.ts'
import { describeHosts } from '../support/describe-hosts.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { allHosts, closeFurther, open } from '../support/hosts.ts'
import { expectNoNetworks } from '../support/host-networks.ts'
import { get } from '../support/members.ts'
import { guests, outputOf, runIn } from '../support/microvms.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { addressOf, makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// What microVMs share with containers: disks, subnets, the console, metrics.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 10 })
})
afterAll(closeConsoles)

const path = '/api/v1/microvms'

testDrawn(
  'a running microVM attaches and detaches a disk, which survives a suspension and keeps its data',
  async () => {
    const { id: disk } = await tenant.disks.make()
    const { id } = await tenant.microvms.make()
    await (await tenant.microvms.attach(id, disk)).operation.success()
    expect(await tenant.disks.get(disk)).toMatchObject({
      status: 'attached',
      attached_to: { kind: 'microvm', id, mount_path: '/data' },
    })
    await outputOf(tenant, id, 'grep -q " /data " /proc/mounts && echo kept >/data/file && sync')
    await (await tenant.microvms.update(id, { memory_mib: 80 })).operation.success()
    await (await tenant.microvms.suspend(id)).operation.success()
    expect(await tenant.owner.ask('DELETE', `${path}/${id}/disks/${disk}`)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', state: 'suspended' },
    })
    await (await tenant.microvms.resume(id)).operation.success()
    expect(await outputOf(tenant, id, 'cat /data/file; echo more >>/data/file')).toBe('kept')
    await (await tenant.microvms.detach(id, disk)).operation.success()
    expect((await runIn(tenant, id, 'grep " /data " /proc/mounts')).code).toBe(1)
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'available', attached_to: null })
    await (await tenant.microvms.delete(id)).operation.success()

    const other = await tenant.microvms.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
    expect(await outputOf(tenant, other.id, 'cat /data/file')).toMatch(/kept.*more/s)
  },
)

testDrawn(
  'a microVM’s serial line is a console for several watchers, and its usage is measured',
  async () => {
    const { id } = await tenant.microvms.make({ command: ['sh', '-c', 'while :; do :; done'] })
    const terminals = await Promise.all(
      [0, 1].map(() => openConsole(id, { token: tenant.owner.token, plural: 'microvms' })),
    )
    expect((await runIn(tenant, id, 'echo on the line >/dev/ttyS0')).code).toBe(0)
    for (const terminal of terminals) await terminal.shows('on the line')
    const metrics = () =>
      tenant.owner.get<{ series: { name: string; points: [string, number][] }[] }>(`${path}/${id}/metrics`)
    await eventually(async () => {
      const { series } = await metrics()
      const of = (name: string) => series.find((one) => one.name === name)?.points.at(-1)?.[1] ?? 0
      return of('cpu_cores_used') > 0.2 && of('memory_mib_used') > 16
    })
    await (await tenant.microvms.delete(id)).operation.success()
    for (const terminal of terminals) expect((await terminal.closed).code).toBe(1000)
  },
)

describeHosts('in a subnet', () => {
  afterAll(async () => {
    await removeTenants()
    for (const host of await allHosts()) await eventually(() => expectNoNetworks(host, tenant.id))
    await closeFurther()
  })

  test('a microVM and a container connect across hosts and after a suspension; a NIC is hot-plugged', async () => {
    const vpc = await makeVpc(tenant)
    const subnet = await makeSubnet(tenant, vpc.id)
    const hosts = await allHosts()
    await open(hosts.slice(1, 2))
    const neighbour = await makeMember(tenant, subnet.id)
    await open(hosts.slice(0, 1))
    const server = 'mkdir -p /tmp/www; hostname >/tmp/www/index.html; exec httpd -f -p 80 -h /tmp/www'
    const made = await tenant.microvms.make({
      command: ['sh', '-c', server],
      nics: [{ subnet_id: subnet.id }],
    })
    const machine = made as Member
    const asked = `wget -qO- http://${neighbour.name}/`
    expect(await outputOf(tenant, machine.id, asked)).toBe(neighbour.name)
    expect(await get(neighbour, addressOf(machine))).toBe(machine.name)

    await (await tenant.microvms.suspend(machine.id)).operation.success()
    expect(await get(neighbour, addressOf(machine))).toBeNull()
    await (await tenant.microvms.resume(machine.id)).operation.success()
    await eventually(async () => (await get(neighbour, addressOf(machine))) === machine.name)

    const second = await makeSubnet(tenant, vpc.id, { cidr: '10.0.1.0/24' })
    const nic = await tenant.owner.begin('POST', `${path}/${machine.id}/nics`, { subnet_id: second.id })
    await nic.operation.success()
    const { nics } = (await tenant.microvms.get(machine.id)) as Member
    const [, added] = nics
    await eventually(async () => (await get(neighbour, added?.ip_address ?? '')) === machine.name)
    const gone = await tenant.owner.begin('DELETE', `${path}/${machine.id}/nics/${added?.id}`)
    await gone.operation.success()
    expect(((await tenant.microvms.get(machine.id)) as Member).nics).toHaveLength(1)
    expect(await outputOf(tenant, machine.id, asked)).toBe(neighbour.name)
    expect(await guests(machine.id)).toHaveLength(1)
  })
})
