import { expect, test } from '@jest/globals'
import { makeNetworks } from '../../activities/host/networks.ts'
import type { NetworkDriver, NicSpec, SubnetSpec } from '../../drivers/networks.ts'
import type { HostNetworks } from '../../lib/network-protocol.ts'
import { makeLogger } from '../../lib/log.ts'

// The order of work on a host's networks. test/network/ has the networks themselves.

/** A driver that only remembers, and waits before it applies a subnet for as long as the test wants. */
function remembering() {
  const subnets = new Map<string, SubnetSpec>()
  const nics = new Map<string, NicSpec>()
  const held = new Map<string, () => Promise<void>>()
  const vpcOf = (subnetId: string): string => subnets.get(subnetId)?.vpc_id ?? ''
  const driver: NetworkDriver = {
    async applySubnet(spec) {
      await held.get(spec.id)?.()
      subnets.set(spec.id, spec)
    },
    removeSubnet: async (id) => void subnets.delete(id),
    async attachNic(spec) {
      nics.set(spec.id, spec)
      return { namespace: '', device: '', restored: false }
    },
    detachNic: async (id) => void nics.delete(id),
    nicTraffic: async () => null,
    applyPath: async () => {},
    removePath: async () => {},
    pathReaches: async () => false,
    known: async () => ({
      subnets: [...subnets.values()].map(({ id, vpc_id }) => ({ id, vpc_id })),
      nics: [...nics.values()].map(({ id, subnet_id }) => ({ id, vpc_id: vpcOf(subnet_id) })),
      paths: [],
    }),
    list: async () => [],
  }
  return {
    driver,
    subnets,
    nics,
    /** Holds back this subnet, from when it is `reached` until `goOn` is called. */
    hold: (id: string): { reached: Promise<void>; goOn: () => void } => {
      const reached = Promise.withResolvers<void>()
      const going = Promise.withResolvers<void>()
      held.set(id, () => {
        reached.resolve()
        return going.promise
      })
      return { reached: reached.promise, goOn: going.resolve }
    },
  }
}

const subnetOf = (vpc_id: string, id: string): HostNetworks['subnets'][number] => ({
  id,
  vpc_id,
  tenant_id: vpc_id,
  cidr: '10.0.0.0/24',
  gateway_ip: '10.0.0.1',
  nat: false,
  vni: 1,
  peers: [],
  dhcp: null,
  hosts: [],
  names: [],
})
const nicOf = (vpc_id: string, subnet_id: string, id: string): HostNetworks['nics'][number] => ({
  id,
  instance_id: `instance-${id}`,
  vpc_id,
  subnet_id,
  mac_address: '',
  ip_address: '10.0.0.2',
  default_route: true,
})

function start() {
  const memory = remembering()
  let wanted: HostNetworks = { version: '0', subnets: [], apart: [], nics: [], paths: [] }
  const networks = makeNetworks({
    driver: memory.driver,
    wanted: async () => wanted,
    engine: { find: async () => null },
    log: makeLogger('host', 'error'),
  })
  let version = 0
  return {
    ...memory,
    networks,
    want: (changed: Partial<HostNetworks>): void => {
      wanted = { ...wanted, ...changed, version: String(++version) }
    },
  }
}

test('a start waits for its own VPC, and not for one with many subnets', async () => {
  const { networks, subnets, want, hold } = start()
  const many = Array.from({ length: 50 }, (_, index) => subnetOf('large', `large-${index}`))
  const large = hold('large-0')
  want({ subnets: [...many, subnetOf('small', 'small-0')], nics: [nicOf('small', 'small-0', 'nic')] })
  const all = networks.apply()
  await networks.ready('instance-nic')
  expect([...subnets.keys()]).toEqual(['small-0'])
  // Nor does a later state wait for an earlier one.
  want({ subnets: [...many, subnetOf('small', 'small-0'), subnetOf('small', 'small-1')] })
  await networks.ready('instance-nic')
  expect([...subnets.keys()]).toEqual(['small-0', 'small-1'])
  expect(networks.version()).toBeNull()
  large.goOn()
  await all
  await networks.apply()
  expect(subnets.size).toBe(52)
  expect(networks.version()).toBe('2')
})

test('what a newer state has not is gone, though an older state was still under way', async () => {
  const { networks, subnets, nics, want, hold } = start()
  const first = hold('first')
  want({
    subnets: [subnetOf('vpc', 'first'), subnetOf('vpc', 'second')],
    nics: [nicOf('vpc', 'second', 'nic')],
  })
  const older = networks.apply()
  await first.reached
  want({ subnets: [subnetOf('vpc', 'first')], nics: [] })
  const newer = networks.apply()
  first.goOn()
  await Promise.all([older, newer])
  expect([...subnets.keys()]).toEqual(['first'])
  expect([...nics.keys()]).toEqual([])
  expect(networks.version()).toBe('2')
})

test('a fault of one VPC is told to its own instances', async () => {
  const { networks, driver, want } = start()
  const applySubnet = driver.applySubnet.bind(driver)
  driver.applySubnet = async (spec) => {
    if (spec.vpc_id === 'bad') throw new Error('no room')
    await applySubnet(spec)
  }
  want({
    subnets: [subnetOf('bad', 'bad-0'), subnetOf('good', 'good-0')],
    nics: [nicOf('bad', 'bad-0', 'one'), nicOf('good', 'good-0', 'two')],
  })
  await expect(networks.ready('instance-one')).rejects.toThrow('no room')
  await networks.ready('instance-two')
  expect(networks.version()).toBeNull()
})

test('nothing starts in a VPC whose hosts are set to different tunnels, and what is there is kept in order', async () => {
  const { networks, subnets, want } = start()
  want({
    subnets: [subnetOf('split', 'split-0'), subnetOf('split', 'split-1'), subnetOf('whole', 'whole-0')],
    apart: ['split'],
    nics: [nicOf('split', 'split-0', 'one'), nicOf('whole', 'whole-0', 'two')],
  })
  await expect(networks.ready('instance-one')).rejects.toMatchObject({ code: 'hosts_apart' })
  await networks.ready('instance-two')
  expect([...subnets.keys()].toSorted()).toEqual(['split-0', 'split-1', 'whole-0'])
  want({ apart: [] })
  await networks.ready('instance-one')
})
