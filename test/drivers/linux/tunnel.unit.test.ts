import { expect, test } from '@jest/globals'
import { batch, linksOf, runIn, setSysctls } from '../../../drivers/linux/commands.ts'
import { makeLinuxNetworks } from '../../../drivers/linux/networks.ts'
import { Names } from '../../../drivers/linux/names.ts'
import { newTunnelKeys, tunnelAddress } from '../../../drivers/linux/tunnel-keys.ts'
import { missingForTunnel, tunnelPrograms } from '../../../drivers/linux/tunnel.ts'
import type { SubnetSpec } from '../../../drivers/networks.ts'
import { aroundHosts, fabric, one, two } from '../../support/around-hosts.ts'
import { asRoot } from '../../support/as-root.ts'
import { eventually } from '../../support/eventually.ts'
import { isLong } from '../../support/long.ts'
import { capture, inject, listenAt, sendTo, strays } from '../../support/frames.ts'
import { Fabric, get, type NetworkHost, pings, subnetSpec } from '../../support/networks.ts'

// The network between hosts, as someone sees it who is on it. Each attack is shown to work where it is not fended off.

aroundHosts({ count: 3 })

const tunnelOf = (host: NetworkHost): string => new Names(host.settings.host).tunnel
const endOf = ({ peer }: NetworkHost): string => tunnelAddress(peer.tunnel_key ?? '')

async function share(subnet: SubnetSpec, first = one, second = two): Promise<void> {
  await first.networks.applySubnet({ ...subnet, peers: [second.peer] })
  await second.networks.applySubnet({ ...subnet, peers: [first.peer] })
}

/** Whether the tunnel's only peer has finished a handshake with this host. */
const greeted = async (host: NetworkHost): Promise<boolean> => {
  const shown = await runIn(host.namespace, 'wg', ['show', tunnelOf(host), 'latest-handshakes'])
  return Number(shown.split('\t')[1]) > 0
}

/** Gives a stranger on the underlay an address of a host, which it tells nobody. */
async function take({ namespace }: NetworkHost, address: string): Promise<void> {
  await setSysctls(namespace, ['ipv4/conf/all/arp_ignore=1', 'ipv4/conf/all/arp_announce=2'])
  const length = address.includes(':') ? 128 : 32
  await batch('ip', namespace, [['address', 'add', `${address}/${length}`, 'dev', 'lo']])
}

/** The port of each UDP packet of IPv4 in a capture. */
const portsIn = (lines: string[]): number[] =>
  lines
    .filter((line) => line.slice(24, 28) === '0800' && line.slice(46, 48) === '11')
    .map((line) => Number.parseInt(line.slice(72, 76), 16))

const hex = (text: string): string => Buffer.from(text).toString('hex')

asRoot('the network between hosts', () => {
  test('without a tunnel is open to a stranger who takes a host’s address', async () => {
    const open = await Fabric.make(3, { tunnel: false })
    try {
      const [first, second, stranger] = open.hosts as [NetworkHost, NetworkHost, NetworkHost]
      const subnet = subnetSpec()
      await share(subnet, first, second)
      const member = await open.join(second, subnet, '10.0.0.20', 'a page that is read')
      const client = await open.join(first, subnet, '10.0.0.10')
      const seen = await capture(open.underlay.namespace)
      expect(await get(client, '10.0.0.20')).toBe('a page that is read')
      await eventually(() => seen.lines.join('\n').includes(hex('a page that is read')))
      expect(portsIn(seen.lines)).toContain(4789)
      seen.close()

      await take(stranger, first.address)
      const forged = { vni: subnet.vni, mac: member.nic.mac_address, ip: '10.0.0.20' }
      await inject(stranger.namespace, { to: second.address, from: first.address, ...forged })
      await eventually(async () => (await strays(member)) === 1)
    } finally {
      await open.remove()
    }
  })

  test('does not let a stranger with a host’s addresses send into a VPC', async () => {
    const stranger = fabric.host(2)
    const subnet = subnetSpec()
    await share(subnet)
    const member = await fabric.join(two, subnet, '10.0.0.20')
    const forged = { vni: subnet.vni, mac: member.nic.mac_address, ip: '10.0.0.20' }
    const eth0 = (await linksOf(two.namespace)).get('eth0')?.address ?? ''
    for (const address of [one.address, endOf(one)]) await take(stranger, address)
    await batch('ip', stranger.namespace, [
      ['route', 'add', `${endOf(two)}/128`, 'dev', 'eth0'],
      ['neighbour', 'add', endOf(two), 'lladdr', eth0, 'dev', 'eth0', 'nud', 'permanent'],
    ])
    const beside = { to: endOf(two), from: endOf(one), ...forged }
    await inject(stranger.namespace, { to: two.address, from: one.address, ...forged })
    await inject(stranger.namespace, beside)
    // What comes through the tunnel is there first, unless the stranger's frames went another way.
    await inject(one.namespace, { ...beside })
    await eventually(async () => (await strays(member)) >= 1)
    expect(await strays(member)).toBe(1)

    await runIn(two.namespace, 'nft', ['delete', 'table', 'ip6', new Names(two.settings.host).table])
    await inject(stranger.namespace, beside)
    await eventually(async () => (await strays(member)) === 2)
  })

  test('does not show what passes', async () => {
    const subnet = subnetSpec()
    await share(subnet)
    await fabric.join(two, subnet, '10.0.0.20', 'a page that nobody reads')
    const client = await fabric.join(one, subnet, '10.0.0.10')
    const seen = await capture(fabric.underlay.namespace)
    expect(await get(client, '10.0.0.20')).toBe('a page that nobody reads')
    // Each packet of the page is in the tunnel, so the last of them has been seen with it.
    await eventually(() => portsIn(seen.lines).filter((port) => port === 7084).length > 8)
    seen.close()
    expect(seen.lines.join('\n')).not.toContain(hex('a page that nobody reads'))
    expect(new Set(portsIn(seen.lines))).toEqual(new Set([7084]))
  })
})

asRoot('the tunnel', () => {
  test('carries VXLAN alone, and VXLAN leaves by nothing else', async () => {
    const subnet = subnetSpec()
    await share(subnet)
    const client = await fabric.join(one, subnet, '10.0.0.10')
    const server = await fabric.join(two, subnet, '10.0.0.20', 'server')
    expect(await get(client, '10.0.0.20')).toBe('server')
    expect(await pings(one.namespace, endOf(two), 1)).toBe(false)

    // As when wireguard-go is killed, where IPv6 has a way to the outside.
    const router = (await linksOf(fabric.underlay.namespace)).get('underlay')?.address ?? ''
    await batch('ip', one.namespace, [
      ['link', 'delete', tunnelOf(one)],
      ['neighbour', 'add', 'fe80::1', 'lladdr', router, 'dev', 'eth0', 'nud', 'permanent'],
      ['route', 'add', 'default', 'via', 'fe80::1', 'dev', 'eth0', 'metric', 1],
    ])
    const seen = await capture(fabric.underlay.namespace)
    expect(await pings(client, '10.0.0.20', 1)).toBe(false)
    expect(await get(one.namespace, two.address)).toBe('host') // the capture sees this, and what was before it
    await eventually(() => seen.lines.some((line) => line.slice(24, 28) === '0800'))
    seen.close()
    expect(seen.lines.filter((line) => line.includes(server.nic.mac_address.replaceAll(':', '')))).toEqual([])
    await batch('ip', one.namespace, [['route', 'delete', 'default', 'via', 'fe80::1', 'dev', 'eth0']])

    await one.networks.applySubnet({ ...subnet, peers: [two.peer] })
    await eventually(async () => (await get(client, '10.0.0.20')) === 'server')
  })

  test('is reached from no VPC, on any host', async () => {
    const subnet = subnetSpec()
    await one.networks.applySubnet({ ...subnet, peers: [two.peer] })
    const member = await fabric.join(one, subnet, '10.0.0.10')
    // Another host may be anywhere behind the default route.
    const heard = await listenAt(fabric.outside, [7083, 7084, 4789])
    await sendTo(member, fabric.outsideAddress, [7084, 4789, 7083])
    await eventually(() => heard.lines.length > 0)
    heard.close()
    expect(heard.lines).toEqual(['7083'])
  })

  test('follows a host that has a new key, and ends with the last peer', async () => {
    const subnet = subnetSpec()
    await share(subnet)
    const client = await fabric.join(one, subnet, '10.0.0.10')
    await fabric.join(two, subnet, '10.0.0.20', 'server')
    expect(await get(client, '10.0.0.20')).toBe('server')

    const keys = newTunnelKeys()
    const { tunnel } = two.settings
    const enrolledAnew = makeLinuxNetworks({ ...two.settings, tunnel: tunnel ? { ...tunnel, keys } : null })
    await enrolledAnew.applySubnet({ ...subnet, peers: [one.peer] })
    await one.networks.applySubnet({
      ...subnet,
      peers: [{ address: two.address, tunnel_key: keys.public_key }],
    })
    await eventually(async () => (await get(client, '10.0.0.20')) === 'server')
    const shown = await runIn(one.namespace, 'wg', ['show', tunnelOf(one), 'allowed-ips'])
    expect(shown.trim()).toBe(`${keys.public_key}\t${tunnelAddress(keys.public_key)}/128`)

    await one.networks.applySubnet(subnet)
    expect((await linksOf(one.namespace)).has(tunnelOf(one))).toBe(false)
    expect(await tunnelPrograms(new Names(one.settings.host))).toEqual([])
  })

  test('is there without any packet of a VPC when two hosts hear of each other in the same moment', async () => {
    for (let round = 0; round < (isLong ? 50 : 3); round++) {
      const subnet = subnetSpec()
      await Promise.all([
        one.networks.applySubnet({ ...subnet, peers: [two.peer] }),
        two.networks.applySubnet({ ...subnet, peers: [one.peer] }),
      ])
      await eventually(async () => (await greeted(one)) && greeted(two))
      await Promise.all([one, two].map(({ networks }) => networks.removeSubnet(subnet.id)))
    }
  })

  test('is there although the first greetings are lost', async () => {
    const subnet = subnetSpec()
    const lost = 'chain lost {\ntype filter hook input priority -300\nudp dport 7084 counter drop\n}\n'
    await runIn(two.namespace, 'nft', ['-f', '-'], `table inet lost {\n${lost}}\n`)
    await share(subnet)
    await eventually(async () => {
      const shown = await runIn(two.namespace, 'nft', ['list', 'table', 'inet', 'lost'])
      return Number(/packets (\d+)/.exec(shown)?.[1]) >= 2
    })
    await runIn(two.namespace, 'nft', ['delete', 'table', 'inet', 'lost'])
    await eventually(async () => (await greeted(one)) && greeted(two))
    const client = await fabric.join(one, subnet, '10.0.0.10')
    await fabric.join(two, subnet, '10.0.0.20', 'server')
    expect(await get(client, '10.0.0.20')).toBe('server')
  })

  test('does not join a host with one and a host without one, in either direction', async () => {
    const subnet = subnetSpec()
    const vouched = { address: two.address, tunnel_key: null }
    await one.networks.applySubnet({ ...subnet, peers: [vouched] })
    const without = makeLinuxNetworks({ ...two.settings, tunnel: null })
    await without.applySubnet({ ...subnet, peers: [one.peer] })
    const client = await fabric.join(one, subnet, '10.0.0.10')
    await fabric.join(two, subnet, '10.0.0.20', 'server')
    expect(await pings(client, '10.0.0.20', 1)).toBe(false)
    // Both are set alike again.
    await share(subnet)
    await eventually(async () => (await get(client, '10.0.0.20')) === 'server')
  })

  test('that cannot be is not replaced by VXLAN in clear', async () => {
    const { tunnel, host } = one.settings
    const names = new Names(host)
    const program = '/no/such/wireguard-go'
    const lacking = await missingForTunnel(names, one.namespace, program)
    const links = [...(await linksOf(one.namespace)).keys()]
    expect(links.filter((link) => link.startsWith(names.tunnel))).toEqual([])
    const subnet = subnetSpec({ peers: [two.peer] })
    const without = makeLinuxNetworks({ ...one.settings, tunnel: tunnel ? { ...tunnel, program } : null })
    if (lacking.length === 0) return without.applySubnet(subnet) // the kernel has WireGuard
    expect(lacking.join()).toContain(program)
    await expect(without.applySubnet(subnet)).rejects.toMatchObject({ code: 'host_not_equipped' })
    expect((await linksOf(names.vpc(subnet.vpc_id))).has(names.vxlan(subnet.id))).toBe(false)
  })

  test('stays as it is for a program that has begun again', async () => {
    const subnet = subnetSpec()
    await share(subnet)
    const before = (await linksOf(one.namespace)).get(tunnelOf(one))?.ifindex
    const client = await fabric.join(one, subnet, '10.0.0.10')
    await fabric.join(two, subnet, '10.0.0.20', 'server')
    const again = makeLinuxNetworks(one.settings)
    await again.applySubnet({ ...subnet, peers: [two.peer] })
    expect((await linksOf(one.namespace)).get(tunnelOf(one))?.ifindex).toBe(before)
    expect(await get(client, '10.0.0.20')).toBe('server')
  })
})
