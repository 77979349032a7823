import { expect, test } from '@jest/globals'
import { batch, linksOf } from '../../../drivers/linux/commands.ts'
import { Names } from '../../../drivers/linux/names.ts'
import { makeLinuxNetworks } from '../../../drivers/linux/networks.ts'
import type { SubnetSpec } from '../../../drivers/networks.ts'
import { aroundHosts, fabric, one, two } from '../../support/around-hosts.ts'
import { asRoot } from '../../support/as-root.ts'
import { eventually } from '../../support/eventually.ts'
import { get, pathSpec, pings, reached, subnetSpec } from '../../support/networks.ts'

// Uses the real kernel, which needs root, and nothing else of the platform: hence `unit`.

aroundHosts()

const machines = { cidr: '10.77.0.0/24', gateway_ip: '10.77.0.1', nat: false }
const at = { ip_address: '10.0.0.254' }
const to = { from: '10.77.0.254', ip_address: '10.77.0.11' }

/** Two VPCs on both hosts. */
async function makePair(mine: Partial<SubnetSpec> = {}): Promise<[SubnetSpec, SubnetSpec]> {
  const pair: [SubnetSpec, SubnetSpec] = [subnetSpec(mine), subnetSpec(machines)]
  for (const subnet of pair) await fabric.applyEverywhere(subnet)
  return pair
}

asRoot('a path', () => {
  test('leads its member alone to one port of one address in another VPC, also on another host', async () => {
    const [mine, theirs] = await makePair()
    const member = await fabric.join(one, mine, '10.0.0.10')
    const neighbour = await fabric.join(one, mine, '10.0.0.11')
    const database = await fabric.join(two, theirs, '10.77.0.11', 'database')
    const beside = await fabric.join(two, theirs, '10.77.0.12', 'beside')
    const path = pathSpec(member, { subnet: mine, ...at }, { subnet: theirs, ...to })
    await one.networks.applyPath(path)
    const its = `${at.ip_address}:5432`
    expect(await get(member, its)).toBe('database')
    expect(await one.networks.pathReaches(path.id)).toBe(true)

    // Nothing else of the other VPC, at no other address and port.
    expect(await get(beside, to.ip_address)).toBe('database')
    expect(await reached(member, [at.ip_address, to.ip_address, '10.77.0.12', to.from])).toEqual([])
    // No other member, also with the address of the first one.
    expect(await reached(neighbour, [its])).toEqual([])
    await batch('ip', neighbour, [
      ['address', 'delete', '10.0.0.11/24', 'dev', 'eth0'],
      ['address', 'add', '10.0.0.10/24', 'dev', 'eth0'],
    ])
    expect(await reached(neighbour, [its])).toEqual([])
    // No way back.
    expect(await reached(database, [to.from, '10.0.0.10'])).toEqual([])
    expect(await get(member, its)).toBe('database')

    await one.networks.removePath(path.id)
    expect(await reached(member, [its])).toEqual([])
    expect(await one.networks.pathReaches(path.id)).toBe(false)
    expect((await one.networks.list()).filter(({ of }) => of.kind === 'path')).toEqual([])
    expect(await pings(neighbour, '10.0.0.1')).toBe(true)
  })

  test('leads between VPCs with the same addresses, and to two of them', async () => {
    const [mine, theirs] = await makePair(machines)
    const others = subnetSpec(machines)
    await fabric.applyEverywhere(others)
    const member = await fabric.join(one, mine, '10.77.0.12')
    const own = await fabric.join(one, mine, '10.77.0.11', 'own')
    for (const [subnet, name] of [
      [theirs, 'theirs'],
      [others, 'others'],
    ] as const)
      await fabric.join(two, subnet, '10.77.0.11', name)
    const first = pathSpec(member, { subnet: mine, ip_address: '10.77.0.254' }, { subnet: theirs, ...to })
    const second = pathSpec(member, { subnet: mine, ip_address: '10.77.0.253' }, { subnet: others, ...to })
    await one.networks.applyPath(first)
    await one.networks.applyPath(second)
    expect(await get(member, '10.77.0.254:5432')).toBe('theirs')
    expect(await get(member, '10.77.0.253:5432')).toBe('others')
    expect(await get(member, '10.77.0.11')).toBe(own.name)
    expect(await one.networks.pathReaches(first.id)).toBe(true)
    expect(await one.networks.pathReaches(second.id)).toBe(true)
  })

  test('is made whole by another apply, follows its member to another host and says whether its target answers', async () => {
    const [mine, theirs] = await makePair()
    const member = await fabric.join(one, mine, '10.0.0.10')
    const database = await fabric.join(two, theirs, '10.77.0.11', 'database')
    const path = pathSpec(member, { subnet: mine, ...at }, { subnet: theirs, ...to })
    await one.networks.applyPath(path)
    const its = `${at.ip_address}:5432`
    const names = new Names(one.settings.host)
    for (const id of [path.near.id, path.far.id]) {
      const vpc = id === path.near.id ? mine : theirs
      await batch('ip', names.vpc(vpc.vpc_id), [['link', 'delete', names.nic(id)]])
      expect(await reached(member, [its])).toEqual([])
      await one.networks.applyPath(path)
      expect(await get(member, its)).toBe('database')
    }
    // Another process knows of it.
    const next = makeLinuxNetworks(one.settings)
    expect((await next.known()).paths).toEqual([path.id])
    await next.removePath(path.id)
    await one.networks.detachNic(member.nic.id)
    await two.networks.attachNic({ ...member.nic, into: { pid: member.pid } })
    await two.networks.applyPath(path)
    await eventually(async () => (await get(member, its)) === 'database')
    expect((await linksOf(names.vpc(mine.vpc_id))).has(names.nic(path.near.id))).toBe(false)

    await fabric.end(database)
    await eventually(async () => !(await two.networks.pathReaches(path.id)))
  })
})
