import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readdir, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { resolve as resolvePath } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { floodPeers, linksOf, lookAt, namespaceFile, run, runIn } from '../../../drivers/linux/commands.ts'
import { makeLinuxNetworks } from '../../../drivers/linux/networks.ts'
import { Names } from '../../../drivers/linux/names.ts'
import { isNamespace } from '../../../drivers/linux/namespaces.ts'
import { tunnelPrograms } from '../../../drivers/linux/tunnel.ts'
import type { SubnetSpec } from '../../../drivers/networks.ts'
import { makeHosts, removeHosts } from '../../../script/lib/hosts.ts'
import { isLong } from '../../support/long.ts'
import { aroundHosts, fabric, one, two } from '../../support/around-hosts.ts'
import { asRoot } from '../../support/as-root.ts'
import { eventually } from '../../support/eventually.ts'
import {
  Fabric,
  get,
  killResolver,
  type NetworkHost,
  nicSpec,
  pings,
  reached,
  resolve,
  subnetSpec,
  uplinkOf,
} from '../../support/networks.ts'
import { sampled } from '../../support/sampled.ts'

// Uses the real kernel, which needs root, and nothing else of the platform: hence `unit`.

const kills = isLong ? 60 : 2

aroundHosts()

asRoot('network state', () => {
  test('applying a subnet again changes nothing', async () => {
    const subnet = subnetSpec({
      peers: [two.peer],
      hosts: [{ mac_address: '52:54:00:aa:00:0A', ip_address: '10.0.0.10' }],
      names: [{ name: 'web', ip_address: '10.0.0.10' }],
    })
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.10')
    const before = await stateOf(one, subnet)
    await one.networks.applySubnet(structuredClone(subnet))
    await one.networks.attachNic(member.nic)
    expect(await stateOf(one, subnet)).toEqual(before)
  })

  const harm: [string, (namespace: string, subnet: SubnetSpec) => Promise<unknown>][] = [
    ['its resolver is killed', (_, subnet) => killResolver(one, subnet)],
    [
      'its bridge',
      (vpc, { id }) => runIn(vpc, 'ip', ['link', 'delete', new Names(one.settings.host).bridge(id)]),
    ],
    [
      'its VXLAN link',
      (vpc, { id }) => runIn(vpc, 'ip', ['link', 'delete', new Names(one.settings.host).vxlan(id)]),
    ],
    [
      'its host’s tunnel is killed',
      async () => {
        const names = new Names(one.settings.host)
        const [pid = 0] = await tunnelPrograms(names)
        if (pid > 0) process.kill(pid, 'SIGKILL')
        else await runIn(one.namespace, 'ip', ['link', 'delete', names.tunnel])
        await eventually(async () => !(await linksOf(one.namespace)).has(names.tunnel))
      },
    ],
    [
      'a bridge that was set down',
      (vpc, { id }) => runIn(vpc, 'ip', ['link', 'set', new Names(one.settings.host).bridge(id), 'down']),
    ],
    ['the uplink', (vpc) => runIn(vpc, 'ip', ['link', 'delete', 'uplink'])],
    ['the VPC’s rules', (vpc) => runIn(vpc, 'nft', ['flush', 'ruleset'])],
    ['the host’s rules', () => runIn(one.namespace, 'nft', ['flush', 'ruleset'])],
    ['the way out', (vpc) => runIn(vpc, 'ip', ['route', 'delete', 'default'])],
    ['the addresses', (vpc) => runIn(vpc, 'ip', ['-4', 'address', 'flush', 'scope', 'global'])],
    ['the namespace', (vpc) => run('ip', ['netns', 'delete', vpc])],
  ]
  test.each(sampled(harm, 3))('applying a subnet again restores %s', async (_, break_) => {
    const subnet = subnetSpec({ names: [{ name: 'web', ip_address: '10.0.0.10' }], peers: [two.peer] })
    await one.networks.applySubnet(subnet)
    await two.networks.applySubnet({ ...subnet, peers: [one.peer] })
    await fabric.join(two, subnet, '10.0.0.20', 'far')
    const nic = nicSpec(subnet, '10.0.0.10', 'tap')
    const member = await fabric.member('member')
    await break_(new Names(one.settings.host).vpc(subnet.vpc_id), subnet)
    // The kernel frees a VXLAN number some time after its link.
    await eventually(() => one.networks.applySubnet(subnet).then(() => true))
    await one.networks.attachNic({ ...nic, into: { pid: member.pid } })
    const seen = await Promise.all([
      resolve(member, 'web.internal', '10.0.0.1'),
      ...[fabric.outsideAddress, '10.0.0.20'].map((address) => get(member, address)),
      reached(member, [one.address]),
    ])
    expect(seen).toEqual([['10.0.0.10'], 'outside', 'far', []])
  })

  test('applying a subnet again gives a deleted namespace its name back, and nothing in it is lost', async () => {
    const subnet = subnetSpec({ peers: [two.peer] })
    await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, subnet, '10.0.0.10')
    const vpc = new Names(one.settings.host).vpc(subnet.vpc_id)
    const before = await stateOf(one, subnet)
    await run('ip', ['netns', 'delete', vpc])
    expect(await isNamespace(vpc)).toBe(false)
    await one.networks.applySubnet(subnet)
    expect(await one.networks.attachNic(member.nic)).toMatchObject({ restored: false })
    expect(await stateOf(one, subnet)).toEqual(before)
    expect(await get(member, fabric.outsideAddress)).toBe('outside')
  })

  test('removing a subnet leaves nothing of it, and does not touch others', async () => {
    const kept = subnetSpec()
    await one.networks.applySubnet(kept)
    const neighbour = await fabric.join(one, kept, '10.0.0.10')
    const before = await traces(one)

    const { vpc_id, tenant_id } = subnetSpec()
    const first = subnetSpec({ vpc_id, tenant_id, peers: [two.peer] })
    const second = subnetSpec({ vpc_id, tenant_id, cidr: '10.0.1.0/24', gateway_ip: '10.0.1.1' })
    for (const subnet of [first, second]) await one.networks.applySubnet(subnet)
    const member = await fabric.join(one, first, '10.0.0.10')
    await one.networks.attachNic(nicSpec(second, '10.0.1.10', 'tap'))
    expect(await traces(one)).not.toEqual(before)

    await one.networks.removeSubnet(second.id)
    expect(await get(member, fabric.outsideAddress)).toBe('outside')
    for (let twice = 0; twice < 2; twice++) await one.networks.removeSubnet(first.id)
    expect([...(await linksOf(member)).keys()]).toEqual(['lo'])
    expect(await traces(one)).toEqual(before)
    expect(await get(neighbour, fabric.outsideAddress)).toBe('outside')
  })

  test('removing the last subnet leaves the host as before', async () => {
    const lone = await Fabric.make(1)
    try {
      const host = lone.host(0)
      const before = await traces(host)
      const subnet = subnetSpec({ peers: [two.peer] })
      await host.networks.applySubnet(subnet)
      expect((await traces(host)).links).toContain(new Names(host.settings.host).tunnel)
      await host.networks.attachNic(nicSpec(subnet, '10.0.0.10', 'tap'))
      await host.networks.removeSubnet(subnet.id)
      expect(await host.networks.list()).toEqual([])
      expect(await traces(host)).toEqual(before)
    } finally {
      await lone.remove()
    }
  })

  test('networks without a record are found by their labels, and removed', async () => {
    const before = await traces(one)
    const subnet = subnetSpec({ peers: [two.peer] })
    await one.networks.applySubnet(subnet)
    const nic = nicSpec(subnet, '10.0.0.10', 'tap')
    await one.networks.attachNic(nic)
    await rm(one.settings.stateFolder, { recursive: true })

    const found = (await one.networks.list()).map(({ kind, of }) => `${kind} of ${of.kind} ${of.id}`)
    expect(found).toContain(`namespace of vpc ${subnet.vpc_id}`)
    expect(found).toContain(`link of subnet ${subnet.id}`)
    expect(found).toContain(`link of nic ${nic.id}`)
    expect(found).toContain('process of subnet null')
    await one.networks.detachNic(nic.id)
    await one.networks.removeSubnet(subnet.id)
    expect(await traces(one)).toEqual(before)
  })

  test('many NICs are attached and detached in parallel', async () => {
    const subnets = Array.from({ length: 8 }, () => subnetSpec())
    const before = await traces(one)
    await Promise.all(subnets.map((subnet) => one.networks.applySubnet(subnet)))
    const uplinks = await Promise.all(subnets.map((subnet) => uplinkOf(one, subnet)))
    expect(new Set(uplinks.map(({ host }) => host)).size).toBe(subnets.length)
    await Promise.all(subnets.map(({ id }) => one.networks.removeSubnet(id)))
    expect(await traces(one)).toEqual(before)
  })

  test(
    'retries after a kill complete, and removal leaves nothing',
    async () => {
      const { vpc_id, tenant_id } = subnetSpec()
      const names = [{ name: 'web', ip_address: '10.0.0.10' }]
      const first = subnetSpec({ vpc_id, tenant_id, names, peers: [two.peer] })
      const second = subnetSpec({ vpc_id, tenant_id, cidr: '10.0.1.0/24', gateway_ip: '10.0.1.1' })
      const member = await fabric.member('member')
      const nic = nicSpec(first, '10.0.0.10', { pid: member.pid })
      const before = await traces(one)
      const worker = resolvePath(import.meta.dirname, '../../support/network-worker.ts')

      for (let kill = 0; kill < kills; kill++) {
        // Alternates between outside and inside the host's namespace; a host's worker runs inside.
        const inside = kill % 2 === 1
        const { hostNamespace: _, ...ownSettings } = one.settings
        const orders = JSON.stringify({
          settings: inside ? ownSettings : one.settings,
          subnets: [first, second],
          nics: [nic],
        })
        const enter = inside ? ['nsenter', `--net=${namespaceFile(one.namespace)}`] : ['env']
        const child = spawn(enter[0] ?? '', [...enter.slice(1), process.execPath, worker, orders], {
          stdio: ['ignore', 'pipe', 'inherit'],
        })
        await once(child.stdout, 'data') // it has begun
        await delay(randomInt(600))
        child.kill('SIGKILL')
        await once(child, 'exit')

        // The last command that it started may still run.
        await eventually(async () => {
          for (const subnet of [first, second]) await one.networks.applySubnet(subnet)
          await one.networks.attachNic(nic)
          return true
        })
        const seen = await Promise.all([
          get(member, fabric.outsideAddress),
          resolve(member, 'web.internal', '10.0.0.1'),
          pings(member, '10.0.1.1'),
        ])
        expect(seen).toEqual(['outside', ['10.0.0.10'], true])
        for (const { id } of [second, first]) await one.networks.removeSubnet(id)
        expect(await traces(one)).toEqual(before)
      }
    },
    kills * 60_000,
  )

  test('a missing tool and a missing privilege are named', async () => {
    await expect(run('keelson-no-such-tool', [])).rejects.toMatchObject({ code: 'host_not_equipped' })
    await expect(runIn(one.namespace, 'keelson-no-such-tool', [])).rejects.toMatchObject({
      code: 'host_not_equipped',
      missing: 'the program keelson-no-such-tool',
    })
    const powerless = [
      '--clear-groups',
      '--reuid',
      '65534',
      '--bounding-set=-all',
      'ip',
      'link',
      'add',
      'x',
      'type',
      'bridge',
    ]
    await expect(run('setpriv', powerless)).rejects.toMatchObject({
      code: 'host_not_permitted',
      permanent: true,
    })
  })

  test('a state folder that dnsmasq cannot enter is refused at once', async () => {
    const stateFolder = resolvePath(one.settings.stateFolder, 'closed')
    await mkdir(stateFolder, { recursive: true, mode: 0o700 })
    const networks = makeLinuxNetworks({ ...one.settings, stateFolder })
    const subnet = subnetSpec()
    await expect(networks.applySubnet(subnet)).rejects.toMatchObject({ code: 'host_not_permitted' })
    await networks.removeSubnet(subnet.id)
    expect(await networks.list()).toEqual([])
  })

  test('an impossible request is refused before anything is changed', async () => {
    const before = await traces(one)
    for (const wrong of [
      { cidr: '10.0.0.0' },
      { gateway_ip: '10.0.9.1' },
      { id: 'a/b' },
      { vni: 0 },
      { names: [{ name: 'web\nuser=root', ip_address: '10.0.0.10' }] },
      { hosts: [{ mac_address: 'x', ip_address: '10.0.0.10' }] },
    ]) {
      await expect(one.networks.applySubnet(subnetSpec(wrong))).rejects.toMatchObject({
        code: 'engine_refused',
      })
    }
    const wrong = [{ refused: ['mongodb.internal'] }, { uplinkPool: '100.64' }, { host: 'a"b' }]
    for (const setting of wrong)
      expect(() => makeLinuxNetworks({ ...one.settings, ...setting })).toThrow('not valid')
    expect(await traces(one)).toEqual(before)
  })
})

asRoot('development hosts', () => {
  test('reach each other and the machine, stay when they are made again, and leave nothing', async () => {
    const name = `kt${randomInt(2 ** 32).toString(36)}`
    const machineLinks = async () =>
      [...(await linksOf(null)).values()].filter(({ ifalias }) => ifalias === `keelson/hosts/${name}`).length
    const wanted = { network: `10.98.${randomInt(256)}.0/24`, machine: true }
    const made = await makeHosts(name, 2, wanted)
    try {
      const [first, second] = made.hosts.map(({ namespace }) => namespace) as [string, string]
      const links = await linksOf(first)
      expect(await makeHosts(name, 2, wanted)).toEqual(made)
      expect(await linksOf(first)).toEqual(links)
      expect(await pings(second, made.hosts[0]?.address ?? '')).toBe(true)

      const server = createServer((_, answer) => answer.end('machine')).listen(
        0,
        made.underlay.machine?.address ?? '',
      )
      await once(server, 'listening')
      const { port } = server.address() as AddressInfo
      expect(await get(first, `${made.underlay.machine?.address}:${port}`)).toBe('machine')
      server.closeAllConnections()
      server.close()
      expect(await machineLinks()).toBe(1)
    } finally {
      await removeHosts(made)
    }
    expect(await machineLinks()).toBe(0)
    expect((await readdir('/run/netns')).filter((file) => file.startsWith(name))).toEqual([])
  })
})

/** The kernel's state of a VPC and its host. */
async function stateOf(host: NetworkHost, { vpc_id }: SubnetSpec): Promise<unknown> {
  const vpc = new Names(host.settings.host).vpc(vpc_id)
  const [inside, around] = await Promise.all([vpc, host.namespace].map(kernelState))
  return { inside, around, things: await host.networks.list() }
}

async function kernelState(namespace: string): Promise<unknown> {
  const { links, routes, neighbours } = await lookAt(namespace)
  return {
    links: [...links.values()].map(({ ifname, ifindex, address, addr_info }) => {
      // The kernel adds IPv6 addresses by itself, some time later.
      const own = addr_info.filter(({ family }) => family === 'inet')
      return [ifname, ifindex, address, own]
    }),
    routes,
    neighbours,
    peers: await floodPeers(namespace),
    rules: await runIn(namespace, 'nft', ['list', 'ruleset']),
  }
}

/** What a host's networks leave on the machine. */
async function traces({ namespace, settings, networks }: NetworkHost) {
  return {
    things: (await networks.list()).map(({ kind, name }) => `${kind} ${name}`).toSorted(),
    namespaces: (await readdir('/run/netns')).filter((name) =>
      name.startsWith(new Names(settings.host).prefix),
    ),
    links: [...(await linksOf(namespace)).keys()].toSorted(),
    rules: await runIn(namespace, 'nft', ['list', 'ruleset']),
  }
}
