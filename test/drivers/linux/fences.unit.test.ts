import { afterEach, expect, test } from '@jest/globals'
import { batch, linksOf, runIn } from '../../../drivers/linux/commands.ts'
import { applyFence, type Fence, removeFence } from '../../../drivers/linux/fences.ts'
import { Names } from '../../../drivers/linux/names.ts'
import { aroundHosts, fabric, one, two } from '../../support/around-hosts.ts'
import { asRoot, isRoot } from '../../support/as-root.ts'
import { eventually } from '../../support/eventually.ts'
import { inject, listenAt, sendTo, strays } from '../../support/frames.ts'
import { get, type Member, type NetworkHost, reached, resolve, subnetSpec } from '../../support/networks.ts'

// Containers without NICs, as an engine puts them on its bridge. Each attack is first shown to work without the fence, and
// for that with an operator who vouches for the network between hosts.

aroundHosts({ tunnel: false })

const bridge = 'engine0'
const secondOutside = '203.0.113.20'

const fenceOf = (host: NetworkHost): Fence => ({
  host: host.settings.host,
  namespace: host.namespace,
  bridge,
  refused: [`${secondOutside}/32`],
  resolvers: [fabric.underlay.address],
  hostPorts: [4789, 7084],
})

/** Names of links are used once: a container's link ends some time after its process. */
let links = 0

/** An engine's bridge with containers at these addresses, and the rules of an engine that lets everything through. */
async function makeContainers(host: NetworkHost, addresses: string[]): Promise<Member[]> {
  await batch('ip', host.namespace, [
    ['link', 'add', bridge, 'type', 'bridge', 'forward_delay', 0],
    ['address', 'add', '172.20.0.1/24', 'dev', bridge],
    ['link', 'set', bridge, 'up'],
  ])
  await runIn(host.namespace, 'sh', ['-c', 'echo 1 >/proc/sys/net/ipv4/ip_forward'])
  await runIn(host.namespace, 'nft', ['-f', '-'], engineRules)
  return Promise.all(
    addresses.map(async (address, i) => {
      const member = await fabric.member(`container ${i}`)
      const port = `port${links++}`
      await batch('ip', host.namespace, [
        ['link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', member.pid],
        ['link', 'set', port, 'master', bridge, 'up'],
      ])
      await batch('ip', member, [
        ['address', 'add', `${address}/24`, 'dev', 'eth0'],
        ['link', 'set', 'eth0', 'up'],
        ['route', 'add', 'default', 'via', '172.20.0.1'],
      ])
      return member
    }),
  )
}

/** Port 8080 of the host is published for port 80 of the second container. */
const engineRules = `
table ip engine {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    fib daddr type local tcp dport 8080 dnat to 172.20.0.11:80
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr 172.20.0.0/24 oifname != "${bridge}" masquerade
  }
}
`

async function removeContainers(host: NetworkHost): Promise<void> {
  await removeFence(fenceOf(host))
  await runIn(host.namespace, 'nft', ['-f', '-'], 'table ip engine\ndelete table ip engine\n')
  if ((await linksOf(host.namespace)).has(bridge))
    await batch('ip', host.namespace, [['link', 'delete', bridge]])
}
afterEach(async () => {
  if (isRoot) await removeContainers(one)
})

asRoot('containers without NICs', () => {
  test('reach the outside and the resolver, but no neighbour, host, underlay, metadata or listed address', async () => {
    const [container, neighbour] = await makeContainers(one, ['172.20.0.10', '172.20.0.11'])
    if (!container || !neighbour) throw new Error('no containers')
    await batch('ip', fabric.outside, [['address', 'add', `${secondOutside}/24`, 'dev', 'eth0']])
    const forbidden = [
      '172.20.0.11', // the neighbour
      `${one.address}:8080`, // its published port
      '172.20.0.1',
      one.address,
      two.address,
      fabric.underlay.address,
      '169.254.169.254',
      secondOutside,
    ]
    // Without the fence all of them answer.
    for (const address of forbidden)
      expect([address, await get(container, address)]).not.toEqual([address, null])

    await applyFence(fenceOf(one))
    const stays = async () => {
      expect(await reached(container, forbidden)).toEqual([])
      expect(await get(container, fabric.outsideAddress)).toBe('outside')
      expect(await resolve(container, 'far.test', fabric.underlay.address)).toEqual([fabric.outsideAddress])
      // The host itself, and others by the published port, reach the neighbour.
      expect(await get(one.namespace, '172.20.0.11')).toBe('container 1')
      expect(await get(two.namespace, `${one.address}:8080`)).toBe('container 1')
    }
    await stays()
    await runIn(one.namespace, 'nft', [
      'delete',
      'table',
      'ip',
      `${new Names(one.settings.host).table}_fence`,
    ])
    expect(await get(container, two.address)).toBe('host')
    await applyFence(fenceOf(one))
    await stays()
    await batch('ip', fabric.outside, [['address', 'delete', `${secondOutside}/24`, 'dev', 'eth0']])
  })

  test('cannot send frames into a subnet that their host shares with another host', async () => {
    const [container] = await makeContainers(one, ['172.20.0.10'])
    if (!container) throw new Error('no container')
    const subnet = subnetSpec()
    await fabric.applyEverywhere(subnet)
    const member = await fabric.join(two, subnet, '10.0.0.20')
    const frame = { to: two.address, vni: subnet.vni, mac: member.nic.mac_address, ip: '10.0.0.20' }
    // Its host's address is a peer's: without the fence the frame arrives.
    await inject(container, frame)
    await eventually(async () => (await strays(member)) === 1)

    await applyFence(fenceOf(one))
    await inject(container, frame)
    // What the host itself sends later is there first, unless the container's frame went another way.
    await inject(one.namespace, frame)
    await eventually(async () => (await strays(member)) >= 2)
    expect(await strays(member)).toBe(2)

    // Nor does one reach the port of the tunnel of a host, which may be anywhere behind the default route.
    const heard = await listenAt(fabric.outside, [7083, 7084])
    await sendTo(container, fabric.outsideAddress, [7084, 7083])
    await eventually(() => heard.lines.length > 0)
    heard.close()
    expect(heard.lines).toEqual(['7083'])
  })

  test('are reached by others at their published ports alone', async () => {
    await makeContainers(one, ['172.20.0.10', '172.20.0.11'])
    await batch('ip', two.namespace, [['route', 'replace', '172.20.0.0/24', 'via', one.address]])
    expect(await get(two.namespace, '172.20.0.11')).toBe('container 1')
    await applyFence(fenceOf(one))
    expect(await reached(two.namespace, ['172.20.0.10', '172.20.0.11'])).toEqual([])
    expect(await get(two.namespace, `${one.address}:8080`)).toBe('container 1')
    await batch('ip', two.namespace, [['route', 'delete', '172.20.0.0/24', 'via', one.address]])
  })
})

asRoot('the port of VXLAN', () => {
  test('takes frames for a subnet from the other hosts of that subnet alone', async () => {
    const subnet = subnetSpec()
    await fabric.applyEverywhere(subnet)
    const member = await fabric.join(two, subnet, '10.0.0.20')
    const frame = { to: two.address, vni: subnet.vni, mac: member.nic.mac_address, ip: '10.0.0.20' }
    await inject(fabric.outside, frame)
    await inject(one.namespace, frame)
    await eventually(async () => (await strays(member)) > 0)
    expect(await strays(member)).toBe(1)
  })
})
