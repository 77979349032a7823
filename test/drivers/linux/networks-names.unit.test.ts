import { expect, test } from '@jest/globals'
import { runIn } from '../../../drivers/linux/commands.ts'
import { aroundHosts, fabric, one, two } from '../../support/around-hosts.ts'
import { asRoot } from '../../support/as-root.ts'
import { eventually } from '../../support/eventually.ts'
import { killResolver, type Member, resolve, resolvers, subnetSpec } from '../../support/networks.ts'

// Uses the real kernel, which needs root, and nothing else of the platform: hence `unit`.

aroundHosts()

asRoot('names and addresses', () => {
  const server = { mac_address: '52:54:00:aa:00:0a', ip_address: '10.0.0.10' }

  test('the gateway resolves members’ names, and with nat other names by the host’s resolvers', async () => {
    const subnet = subnetSpec({ names: [{ name: 'web', ip_address: '10.0.0.10' }] })
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.11')
    expect(await resolve(member, 'web.internal', '10.0.0.1')).toEqual(['10.0.0.10'])
    expect(await resolve(member, 'far.test', '10.0.0.1')).toEqual([fabric.outsideAddress])
    // Only the gateway may query the host's resolver, not the member.
    expect(await resolve(member, 'far.test', fabric.underlay.address, 2)).toEqual([])

    await one.networks.applySubnet({ ...subnet, nat: false })
    expect(await resolve(member, 'web.internal', '10.0.0.1')).toEqual(['10.0.0.10'])
    expect(await resolve(member, 'far.test', '10.0.0.1', 2)).toEqual([])
  })

  test('the DNS servers of the DHCP config are queried, and give no route to a host', async () => {
    const dhcp = { range: null, lease_time_sec: 600, domain_name: 'corp.test', static_leases: [] }
    const subnet = subnetSpec({
      dhcp: { ...dhcp, dns_servers: [fabric.outsideAddress] },
      names: [{ name: 'web', ip_address: '10.0.0.10' }],
    })
    await fabric.answer(fabric.outside, 'own.test', '198.51.100.7')
    await fabric.answer(one.namespace, 'host.test', '198.51.100.8')
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.11')
    expect(await resolve(member, 'web.corp.test', '10.0.0.1')).toEqual(['10.0.0.10'])
    expect(await resolve(member, 'own.test', '10.0.0.1')).toEqual(['198.51.100.7'])

    expect(await resolve(one.namespace, 'host.test', one.address)).toEqual(['198.51.100.8'])
    await one.networks.applySubnet({ ...subnet, dhcp: { ...dhcp, dns_servers: [one.address] } })
    expect(await resolve(member, 'host.test', '10.0.0.1', 2)).toEqual([])
  })

  test('names and members change without a restart of the resolver', async () => {
    const subnet = subnetSpec({ names: [{ name: 'web', ip_address: '10.0.0.10' }] })
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.11')
    const [before] = await resolvers(one, subnet)
    const names = [{ name: 'shop', ip_address: '10.0.0.12' }]
    await one.networks.applySubnet({ ...subnet, names, hosts: [server] })
    await eventually(async () => (await resolve(member, 'shop.internal', '10.0.0.1')).includes('10.0.0.12'))
    expect(await resolve(member, 'web.internal', '10.0.0.1')).toEqual([])
    expect(await resolvers(one, subnet)).toEqual([before])
  })

  test('a DHCP client gets its static lease, and the options of its subnet', async () => {
    const subnet = subnetSpec({ hosts: [server] })
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.99')
    expect(await lease(member, server.mac_address)).toMatchObject({
      ip: '10.0.0.10',
      mask: '24',
      router: '10.0.0.1',
      dns: '10.0.0.1',
      domain: 'internal',
      lease: '3600',
      mtu: '1370',
    })
    expect(await lease(member, '52:54:00:bb:00:01', 2)).toBeNull()
  })

  test('a subnet lends addresses from the range of its DHCP config only while that is attached', async () => {
    const subnet = subnetSpec({ hosts: [server] })
    const dhcp = {
      range: { start: '10.0.0.200', end: '10.0.0.201' },
      lease_time_sec: 900,
      dns_servers: [],
      domain_name: 'corp.test',
      static_leases: [{ mac_address: '52:54:00:aa:00:0b', ip_address: '10.0.0.11' }],
    }
    await one.networks.applySubnet({ ...subnet, dhcp })
    const member = await fabric.join(one, subnet, '10.0.0.99')
    const lent = await lease(member, '52:54:00:bb:00:02')
    expect(['10.0.0.200', '10.0.0.201']).toContain(lent?.['ip'])
    expect(lent).toMatchObject({ domain: 'corp.test', lease: '900' })
    expect(await lease(member, '52:54:00:aa:00:0b')).toMatchObject({ ip: '10.0.0.11' })
    expect(await lease(member, server.mac_address)).toMatchObject({ ip: '10.0.0.10' })

    await one.networks.applySubnet(subnet)
    expect(await lease(member, '52:54:00:bb:00:03', 2)).toBeNull()
  })

  test('an address that is given to another NIC is leased to that NIC at once', async () => {
    const subnet = subnetSpec({ hosts: [server] })
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.99')
    expect(await lease(member, server.mac_address)).toMatchObject({ ip: '10.0.0.10' })
    const heir = { ...server, mac_address: '52:54:00:aa:00:0c' }
    await one.networks.applySubnet({ ...subnet, hosts: [heir] })
    expect(await lease(member, heir.mac_address)).toMatchObject({ ip: '10.0.0.10' })
  })

  test('each host serves its own leases', async () => {
    const subnet = subnetSpec({ hosts: [server] })
    await one.networks.applySubnet({ ...subnet, peers: [two.peer] })
    await two.networks.applySubnet({ ...subnet, peers: [one.peer] })
    const member = await fabric.join(two, subnet, '10.0.0.99')
    await killResolver(two, subnet)
    expect(await lease(member, server.mac_address, 2)).toBeNull()
    await two.networks.applySubnet({ ...subnet, peers: [one.peer] })
    expect(await lease(member, server.mac_address)).toMatchObject({ ip: '10.0.0.10' })
  })
})

/** The variables that a DHCP client with that MAC address gets; null if no server answers so many tries. */
async function lease(member: Member, mac: string, tries = 15): Promise<Record<string, string> | null> {
  await runIn(member, 'ip', ['link', 'set', 'eth0', 'address', mac])
  const options = `-i eth0 -f -n -q -t ${tries} -T 1 -O mtu -O lease -s ${await fabric.dhcpScript()}`
  const said = await runIn(member, 'busybox', ['udhcpc', ...options.split(' ')]).catch(() => null)
  const bound = said?.split('\n').filter((line) => line.includes('='))
  return bound?.length ? Object.fromEntries(bound.map((line) => line.split('=') as [string, string])) : null
}
