import { expect, test } from '@jest/globals'
import { batch, floodPeers, linksOf, lookAt, runIn, setSysctls } from '../../../drivers/linux/commands.ts'
import { Names } from '../../../drivers/linux/names.ts'
import { makeNamespace, removeNamespace } from '../../../drivers/linux/namespaces.ts'
import { makeLinuxNetworks } from '../../../drivers/linux/networks.ts'
import { newTunnelKeys, tunnelAddress } from '../../../drivers/linux/tunnel-keys.ts'
import type { PeerHost } from '../../../drivers/networks.ts'
import { aroundHosts, fabric, one, two } from '../../support/around-hosts.ts'
import { asRoot } from '../../support/as-root.ts'
import { eventually } from '../../support/eventually.ts'
import { get, type Member, nicSpec, pings, reached, subnetSpec, uplinkOf } from '../../support/networks.ts'

// Uses the real kernel, which needs root, and nothing else of the platform: hence `unit`.

aroundHosts()

const rule = (...words: string[]) => runIn(one.namespace, 'iptables', words)
const rulesNamed = async (): Promise<number | undefined> =>
  (await runIn(one.namespace, 'iptables-save', [])).match(/keelson/g)?.length

asRoot('isolation', () => {
  test('two tenants can use the same cidr and address on one host', async () => {
    const red = subnetSpec()
    const blue = subnetSpec()
    for (const subnet of [red, blue]) await one.networks.applySubnet(subnet)
    await fabric.join(one, red, '10.0.0.10', 'red server')
    await fabric.join(one, blue, '10.0.0.10', 'blue server')
    const redClient = await fabric.join(one, red, '10.0.0.11')
    const blueClient = await fabric.join(one, blue, '10.0.0.11')
    expect(await get(redClient, '10.0.0.10')).toBe('red server')
    expect(await get(blueClient, '10.0.0.10')).toBe('blue server')
  })

  test('a member reaches the outside, but no other VPC, host or metadata service', async () => {
    const mine = subnetSpec()
    const other = subnetSpec({ cidr: '10.7.0.0/24', gateway_ip: '10.7.0.1' })
    for (const subnet of [mine, other]) await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, mine, '10.0.0.10')
    const stranger = await fabric.join(one, other, '10.7.0.10', 'stranger')
    const [mineOut, otherOut] = [await uplinkOf(one, mine), await uplinkOf(one, other)]

    // These exist, and answer those who may reach them.
    expect(await get(two.namespace, one.address)).toBe('host')
    expect(await get(one.namespace, two.address)).toBe('host')
    expect(await get(one.namespace, '169.254.169.254')).toBe('outside')
    expect(await get(one.namespace, fabric.underlay.address)).toBe('router')
    expect(await get(stranger, '10.7.0.10')).toBe('stranger')
    expect(await get(member, fabric.outsideAddress)).toBe('outside')
    const elsewhere = '198.51.100.5' // an address of the host that the driver does not know
    await runIn(one.namespace, 'ip', ['address', 'add', elsewhere, 'dev', 'lo'])
    expect(await get(one.namespace, elsewhere)).toBe('host')

    const refused = [
      elsewhere,
      '10.7.0.10',
      '10.7.0.1',
      one.address,
      two.address,
      fabric.underlay.address,
      '169.254.169.254',
      mineOut.host,
      otherOut.host,
      otherOut.vpc,
    ]
    expect(await reached(member, refused)).toEqual([])
    await runIn(one.namespace, 'ip', ['address', 'delete', elsewhere, 'dev', 'lo'])
  })

  test('packets with a forged source address are dropped where they leave the VPC', async () => {
    const subnet = subnetSpec()
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.10')
    await runIn(member, 'ip', ['address', 'add', '198.51.100.7/32', 'dev', 'eth0'])
    const names = new Names(one.settings.host)
    const dropped = async (): Promise<number> => {
      const chain = await runIn(names.vpc(subnet.vpc_id), 'nft', [
        'list',
        'chain',
        'ip',
        names.table,
        'prerouting',
      ])
      return Number(/counter packets (\d+)/.exec(chain)?.[1])
    }
    expect(await pings(member, subnet.gateway_ip)).toBe(true)
    expect(await dropped()).toBe(0)
    const asStranger = ['ping', '-c', '3', '-W', '1', '-I', '198.51.100.7', subnet.gateway_ip]
    await expect(runIn(member, 'busybox', asStranger)).rejects.toThrow()
    expect(await dropped()).toBe(3)
  })

  test('VPCs stay apart even if the host has a route between them', async () => {
    const mine = subnetSpec()
    const other = subnetSpec({ cidr: '10.8.0.0/24', gateway_ip: '10.8.0.1' })
    for (const subnet of [mine, other]) await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, mine, '10.0.0.10')
    await fabric.join(one, other, '10.8.0.10', 'stranger')
    const { vpc } = await uplinkOf(one, other)
    await runIn(one.namespace, 'ip', ['route', 'add', '10.8.0.0/24', 'via', vpc])
    try {
      expect(await reached(member, ['10.8.0.10'])).toEqual([])
    } finally {
      await runIn(one.namespace, 'ip', ['route', 'delete', '10.8.0.0/24'])
    }
  })

  test('an engine’s firewall rules neither open what is refused nor close what is allowed', async () => {
    // As an engine writes them: a port of the host leads to a container, and unknown traffic is dropped.
    const container = await fabric.container(one, '172.31.0.2', 'published')
    await rule('-P', 'FORWARD', 'DROP')
    await rule('-A', 'FORWARD', '-o', 'docker0', '-j', 'ACCEPT')
    await rule('-A', 'FORWARD', '-i', 'docker0', '-j', 'ACCEPT')
    const published = ['--dport', '80', '-j', 'DNAT', '--to-destination', '172.31.0.2:80']
    await rule('-t', 'nat', '-A', 'PREROUTING', '-p', 'tcp', '-d', one.address, ...published)
    try {
      const subnet = subnetSpec()
      await one.networks.applySubnet(subnet)
      const member = await fabric.join(one, subnet, '10.0.0.10')
      expect(await get(two.namespace, one.address)).toBe('published')
      expect(await get(one.namespace, '172.31.0.2')).toBe('published')
      expect(await get(member, fabric.outsideAddress)).toBe('outside')
      expect(await reached(member, [one.address, '172.31.0.2'])).toEqual([])

      await one.networks.applySubnet(subnet)
      expect(await rulesNamed()).toBe(2)
      await one.networks.removeSubnet(subnet.id)
      expect(await rulesNamed()).toBeUndefined()
    } finally {
      await rule('-P', 'FORWARD', 'ACCEPT')
      await rule('-F', 'FORWARD')
      await rule('-t', 'nat', '-F', 'PREROUTING')
      await fabric.end(container)
    }
  })

  test('without nat a member reaches only its VPC', async () => {
    const closed = subnetSpec({ nat: false })
    const open = subnetSpec({
      vpc_id: closed.vpc_id,
      tenant_id: closed.tenant_id,
      cidr: '10.0.1.0/24',
      gateway_ip: '10.0.1.1',
    })
    for (const subnet of [closed, open]) await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, closed, '10.0.0.10')
    const neighbour = await fabric.join(one, open, '10.0.1.10', 'neighbour')
    expect(await get(member, '10.0.1.10')).toBe('neighbour')
    expect(await get(neighbour, fabric.outsideAddress)).toBe('outside')
    expect(await reached(member, [fabric.outsideAddress])).toEqual([])

    await one.networks.applySubnet({ ...closed, nat: true })
    expect(await get(member, fabric.outsideAddress)).toBe('outside')
    await one.networks.applySubnet(closed)
    expect(await reached(member, [fabric.outsideAddress])).toEqual([])
  })
})

asRoot('between hosts', () => {
  test('members of one subnet meet over the underlay; another tenant’s equal subnet stays apart', async () => {
    const red = subnetSpec()
    const blue = subnetSpec()
    await fabric.applyEverywhere(red, blue)
    const client = await fabric.join(one, red, '10.0.0.10')
    await fabric.join(two, red, '10.0.0.11', 'red server')
    await fabric.join(two, blue, '10.0.0.11', 'blue server')
    await fabric.join(two, blue, '10.0.0.12', 'blue only')
    expect(await get(client, '10.0.0.11')).toBe('red server')
    expect(await reached(client, ['10.0.0.12'])).toEqual([])
  })

  test('a VPC’s subnets are routed on one host, and to hosts with a member of the other subnet only', async () => {
    const { vpc_id, tenant_id } = subnetSpec()
    const web = subnetSpec({ vpc_id, tenant_id })
    const data = subnetSpec({ vpc_id, tenant_id, cidr: '10.0.1.0/24', gateway_ip: '10.0.1.1', nat: false })
    const far = nicSpec(data, '10.0.1.20', 'tap')
    data.hosts = [{ mac_address: far.mac_address, ip_address: far.ip_address }]
    const near = nicSpec(web, '10.0.0.10', 'tap')
    web.hosts = [{ mac_address: near.mac_address, ip_address: near.ip_address }]
    await fabric.applyEverywhere(web, data)
    const client = await fabric.member('client')
    const server = await fabric.member('far')
    await one.networks.attachNic({ ...near, into: { pid: client.pid } })
    await two.networks.attachNic({ ...far, into: { pid: server.pid } })
    await fabric.join(one, data, '10.0.1.10', 'near')
    expect(await get(client, '10.0.1.10')).toBe('near')
    expect(await get(client, '10.0.1.20')).toBe('far')
    expect(await get(server, '10.0.0.10')).toBe('client')
    expect(await get(client, fabric.outsideAddress)).toBe('outside')
    // Each member hears only its own host's gateway, so its way out stays on that host.
    expect(await whoHas(server, '10.0.1.1')).toEqual([new Names(two.settings.host).gatewayMac(data.id)])
    expect(await whoHas(client, '10.0.0.1')).toEqual([new Names(one.settings.host).gatewayMac(web.id)])
  })

  test('an instance that has moved to another host is found there at once', async () => {
    const subnet = subnetSpec()
    await fabric.applyEverywhere(subnet)
    const client = await fabric.join(one, subnet, '10.0.0.10')
    const before = await fabric.join(two, subnet, '10.0.0.11', 'before')
    expect(await get(client, '10.0.0.11')).toBe('before')

    await two.networks.detachNic(before.nic.id)
    const after = await fabric.member('after')
    await setSysctls(after, ['ipv6/conf/default/disable_ipv6=1']) // else the kernel would send IPv6 packets by itself
    await one.networks.attachNic({ ...before.nic, into: { pid: after.pid } })
    expect(await get(client, '10.0.0.11')).toBe('after')
  })

  test('a host that is no longer a peer is no longer reached', async () => {
    const subnet = subnetSpec()
    await fabric.applyEverywhere(subnet)
    const client = await fabric.join(one, subnet, '10.0.0.10')
    await fabric.join(two, subnet, '10.0.0.11', 'server')
    expect(await get(client, '10.0.0.11')).toBe('server')
    const namespace = new Names(one.settings.host).vpc(subnet.vpc_id)

    const third = { address: '10.99.0.99', tunnel_key: newTunnelKeys().public_key }
    const sentTo = async () => (await floodPeers(namespace)).map(({ dst }) => dst).toSorted()
    await one.networks.applySubnet({ ...subnet, peers: [third] })
    expect(await sentTo()).toEqual(ends(third))
    await one.networks.applySubnet({ ...subnet, peers: [two.peer, third] })
    expect(await sentTo()).toEqual(ends(two.peer, third))
    expect(await get(client, '10.0.0.11')).toBe('server')
  })

  test('packets of a host without a member in the subnet are dropped', async () => {
    await fabric.applyEverywhere(subnetSpec()) // which the hosts share
    const subnet = subnetSpec()
    await one.networks.applySubnet({ ...subnet, peers: [two.peer] })
    await two.networks.applySubnet(subnet)
    const client = await fabric.join(one, subnet, '10.0.0.10')
    const server = await fabric.join(two, subnet, '10.0.0.11', 'server')
    expect(await reached(client, ['10.0.0.11'])).toEqual([])
    expect((await two.networks.nicTraffic(server.nic.id))?.rx_bytes).toBe(0)

    await two.networks.applySubnet({ ...subnet, peers: [one.peer] })
    expect(await get(client, '10.0.0.11')).toBe('server')
  })

  test('what another platform left on the machine does not drop this one’s packets', async () => {
    const another = makeLinuxNetworks({
      ...two.settings,
      ...(two.settings.tunnel ? { tunnel: { ...two.settings.tunnel, keys: newTunnelKeys() } } : {}),
      host: `${two.settings.host}-former`,
      stateFolder: `${two.settings.stateFolder}-former`,
    })
    const theirs = subnetSpec()
    await another.applySubnet(theirs)
    const subnet = subnetSpec()
    await fabric.applyEverywhere(subnet)
    const client = await fabric.join(one, subnet, '10.0.0.10')
    await fabric.join(two, subnet, '10.0.0.11', 'server')
    expect(await get(client, '10.0.0.11')).toBe('server')
    await another.removeSubnet(theirs.id)
  })
})

asRoot('NICs', () => {
  test('a second NIC is hot-plugged and unplugged', async () => {
    const { vpc_id, tenant_id } = subnetSpec()
    const front = subnetSpec({ vpc_id, tenant_id })
    const back = subnetSpec({ vpc_id, tenant_id, cidr: '10.0.1.0/24', gateway_ip: '10.0.1.1' })
    for (const subnet of [front, back]) await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, front, '10.0.0.10', 'server')
    const client = await fabric.join(one, back, '10.0.1.11')

    const second = nicSpec(back, '10.0.1.10', { pid: member.pid }, { default_route: false })
    expect(await one.networks.attachNic(second)).toMatchObject({ device: 'eth1' })
    expect(await get(client, '10.0.1.10')).toBe('server')
    expect((await linksOf(member)).get('eth1')).toMatchObject({ mtu: 1370, address: second.mac_address })
    const routes = (await lookAt(member)).routes.filter(({ dst }) => dst === 'default')
    expect(routes).toMatchObject([{ gateway: '10.0.0.1', dev: 'eth0' }])

    const traffic = await one.networks.nicTraffic(second.id)
    expect(traffic?.rx_bytes).toBeGreaterThan(100)
    expect(traffic?.tx_bytes).toBeGreaterThan(100)

    for (let twice = 0; twice < 2; twice++) await one.networks.detachNic(second.id)
    expect([...(await linksOf(member)).keys()].toSorted()).toEqual(['eth0', 'lo'])
    expect(await one.networks.nicTraffic(second.id)).toBeNull()
    expect(await get(member, fabric.outsideAddress)).toBe('outside')
  })

  test('attaching a NIC again moves it to another process, address and subnet', async () => {
    const { vpc_id, tenant_id } = subnetSpec()
    const front = subnetSpec({ vpc_id, tenant_id })
    const back = subnetSpec({ vpc_id, tenant_id, cidr: '10.0.1.0/24', gateway_ip: '10.0.1.1' })
    for (const subnet of [front, back]) await one.networks.applySubnet(subnet)
    const first = await fabric.join(one, front, '10.0.0.10', 'first')
    const client = await fabric.join(one, front, '10.0.0.11')
    await one.networks.attachNic({ ...first.nic, ip_address: '10.0.0.12' })
    expect(await get(client, '10.0.0.12')).toBe('first')
    expect(await reached(client, ['10.0.0.10'])).toEqual([])

    // As when a pause container was recreated.
    const second = await fabric.member('second')
    await one.networks.attachNic({ ...first.nic, into: { pid: second.pid } })
    await eventually(async () => (await get(client, '10.0.0.10')) === 'second')
    await fabric.end(first)
    await one.networks.attachNic({
      ...first.nic,
      subnet_id: back.id,
      ip_address: '10.0.1.10',
      into: { pid: second.pid },
    })
    expect(await get(client, '10.0.1.10')).toBe('second')

    await fabric.end(second)
    const third = await fabric.member('third')
    await one.networks.attachNic({ ...first.nic, into: { pid: third.pid } })
    await eventually(async () => (await get(client, '10.0.0.10')) === 'third')
  })

  test('a NIC in a named namespace makes its processes a member, until it is detached', async () => {
    const subnet = subnetSpec()
    await one.networks.applySubnet(subnet)
    const client = await fabric.join(one, subnet, '10.0.0.11')
    const namespace = `${one.namespace}-member`
    await makeNamespace(namespace)
    try {
      const nic = nicSpec(subnet, '10.0.0.10', { namespace })
      for (let twice = 0; twice < 2; twice++)
        expect(await one.networks.attachNic(nic)).toMatchObject({ device: 'eth0', restored: false })
      await batch('ip', namespace, [['link', 'delete', 'eth0']])
      expect(await one.networks.attachNic(nic)).toMatchObject({ device: 'eth0', restored: true })
      const server = await fabric.serve(namespace, 'server')
      expect(await get(client, '10.0.0.10')).toBe('server')
      expect(await get(namespace, fabric.outsideAddress)).toBe('outside')
      expect(await reached(namespace, [one.address])).toEqual([])
      // A process of it names the same namespace.
      await batch('ip', namespace, [['link', 'delete', 'eth0']])
      const into = { pid: server.pid }
      expect(await one.networks.attachNic({ ...nic, into })).toMatchObject({ restored: true })
      await one.networks.detachNic(nic.id)
      expect([...(await linksOf(namespace)).keys()]).toEqual(['lo'])
      await fabric.end(server)
    } finally {
      await removeNamespace(namespace)
    }
  })

  test('a NIC gets another MTU live', async () => {
    const subnet = subnetSpec()
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.10')
    await makeLinuxNetworks({ ...one.settings, mtu: 1300 }).attachNic(member.nic)
    expect((await linksOf(member)).get('eth0')?.mtu).toBe(1300)
  })

  test('a tap is on the bridge of its subnet', async () => {
    const subnet = subnetSpec()
    await one.networks.applySubnet(subnet)
    const nic = nicSpec(subnet, '10.0.0.10', 'tap')
    const { namespace, device } = await one.networks.attachNic(nic)
    const tap = (await linksOf(namespace)).get(device)
    expect(tap).toMatchObject({ master: new Names(one.settings.host).bridge(subnet.id), mtu: 1370 })
    expect(tap?.linkinfo?.info_kind).toBe('tun')
    expect(await one.networks.attachNic(nic)).toEqual({ namespace, device, restored: false })
    await one.networks.detachNic(nic.id)
    expect((await linksOf(namespace)).has(device)).toBe(false)
  })

  test('a NIC is refused where it would change the host, or where its subnet is missing', async () => {
    const subnet = subnetSpec()
    const nic = nicSpec(subnet, '10.0.0.10', { pid: process.pid })
    await expect(one.networks.attachNic(nic)).rejects.toMatchObject({ code: 'subnet_not_on_host' })
    await one.networks.applySubnet(subnet)
    await expect(one.networks.attachNic(nic)).rejects.toMatchObject({
      code: 'engine_refused',
      permanent: true,
    })
    await expect(one.networks.attachNic({ ...nic, ip_address: '10.1.0.10' })).rejects.toMatchObject({
      message: expect.stringContaining('10.1.0.10'),
    })
    for (const into of [
      { pid: 2 ** 22 + 1 },
      { namespace: one.namespace },
      { namespace: '../x' },
      { namespace: 'none' },
    ])
      await expect(one.networks.attachNic({ ...nic, into })).rejects.toMatchObject({ code: 'engine_refused' })
  })
})

/** Where VXLAN for these hosts goes. */
const ends = (...peers: PeerHost[]): string[] =>
  peers.map(({ tunnel_key: key }) => tunnelAddress(key ?? '')).toSorted()

/** The names of the machines that answer a member's ARP request for the address. */
async function whoHas(member: Member, address: string): Promise<string[]> {
  const said = await runIn(member, 'busybox', ['arping', '-b', '-c', '2', '-w', '3', '-I', 'eth0', address])
  return [...new Set([...said.matchAll(/reply from \S+ \[([\da-f:]+)\]/gi)].map(([, mac]) => `${mac}`))]
}
