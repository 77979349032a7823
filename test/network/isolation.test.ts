import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { linksOf } from '../../drivers/linux/commands.ts'
import { Names } from '../../drivers/linux/names.ts'
import { newId } from '../../lib/ids.ts'
import { planePort } from '../../script/lib/further-hosts.ts'
import { metricsPort, nthApiPort } from '../../script/lib/roles.ts'
import { closeConsoles } from '../support/console.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, first, hosts, second } from '../support/describe-hosts.ts'
import { namespaceOf } from '../support/host-networks.ts'
import { closeFurther, open, type TestHost } from '../support/hosts.ts'
import { isLong } from '../support/long.ts'
import { containerOf, get, inside } from '../support/members.ts'
import { outputOf } from '../support/microvms.ts'
import * as seen from '../support/networks.ts'
import { makeOutside, type Outside } from '../support/outside.ts'
import { accepts, type OwnApi, startOwnApi } from '../support/own-api.ts'
import { layout } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { addressOf, makeMember, makeSubnet, makeVpc, type Member, server } from '../support/vpcs.ts'

// What an instance in a subnet with `nat`, and a container without NICs, can reach, tried from inside: its neighbours in
// the subnet and the outside, but not the platform, the hosts, other tenants or the surrounding cloud.

/** Connections tried in parallel: each takes a process or two in a small machine. */
const atOnce = 40
/** Each further host's engine has this network privately; elsewhere the range is not theirs. */
const furtherEngines = /^172\.31\.255\./
/** Follows the API's ports: see startOwnApi. */
const ownApi = layout.apiPort + 70

const kinds = ['container', 'microvm', 'container without NICs'] as const
type Kind = (typeof kinds)[number]

/** All ports of the platform. The test first checks that they are open on this machine. */
const platformPorts = (): number[] => [
  ...[0, 1].flatMap((index) => [nthApiPort(layout.apiPort, index), metricsPort(layout, 'api', index)]),
  metricsPort(layout, 'worker', 0),
  ...[1, 2, 3].flatMap((index) => [planePort(layout, index), metricsPort(layout, 'host', index - 1)]),
  layout.mongodbPort,
  layout.temporalPort,
  layout.temporalUiPort,
  ownApi,
]

/** The `address:port` targets that accept a connection from inside. */
async function connected(run: (script: string) => Promise<string>, targets: string[]): Promise<string[]> {
  const found: string[] = []
  for (let from = 0; from < targets.length; from += atOnce) {
    const some = targets.slice(from, from + atOnce)
    const one = 'nc -w 3 "${at%:*}" "${at##*:}" -e true </dev/null >/dev/null 2>&1 && echo "$at"'
    found.push(...(await run(`for at in ${some.join(' ')}; do ${one} & done; wait`)).split('\n'))
  }
  return found.filter(Boolean).toSorted()
}

/** The addresses that answer a ping. */
const pinged = async (run: (script: string) => Promise<string>, addresses: string[]): Promise<string[]> => {
  const one = 'ping -c 1 -W 3 "$at" >/dev/null 2>&1 && echo "$at"'
  const answer = await run(`for at in ${addresses.join(' ')}; do ${one} & done; wait`)
  return answer.split('\n').filter(Boolean).toSorted()
}

/**
 * Sends each address a datagram, from another source address if one is given. Returns those that arrived, answered or
 * not.
 */
async function arrived(
  { run, outside }: { run: (script: string) => Promise<string>; outside: Outside },
  addresses: string[],
  as: string | null,
  expected: string[],
): Promise<string[]> {
  const mark = newId()
  const each = (one: string) => `for at in ${addresses.join(' ')}; do ${one} done 2>/dev/null`
  const named = `ip route replace "$at" via 10.0.0.1 src ${as};`
  if (as) await run(`ip address add ${as}/32 dev eth0; ${each(named)}; true`)
  // The first datagram carries the name of a file that no server has.
  const one = `timeout 2 tftp -g -l /dev/null -r "${mark}_$at" "$at" ${outside.udpPort} >/dev/null &`
  await run(`${each(one)}; wait`)
  if (as) await run(`${each('ip route delete "$at";')}; ip address delete ${as}/32 dev eth0`)
  const came = () => outside.heard().flatMap((text) => new RegExp(`${mark}_([\\d.]+)`).exec(text)?.[1] ?? [])
  await eventually(() => expected.every((address) => came().includes(address)))
  return [...new Set(came())].toSorted()
}

describeHosts('an instance', () => {
  let tenant: TestTenant
  let subnet: string
  let neighbour: Member
  let outside: Outside
  let api: OwnApi
  /** Addresses of the hosts, of another tenant and of the cloud; each can be reached from its own place. */
  const refused: string[] = []
  const silent: string[] = []
  /** Both ends of the tenant's own uplink, on each host. */
  const uplinks: string[] = []

  /** Another tenant's members with the same range, one on each host. */
  async function makeStrangers(): Promise<void> {
    const stranger = await makeTenant()
    const theirs = await makeSubnet(stranger, (await makeVpc(stranger)).id)
    for (const host of [first, second]) {
      await open([host])
      const published = await makeMember(stranger, theirs.id, { ports: [{ container_port: 80 }] })
      const [port] = published.ports
      expect(await accepts(port?.host_port ?? 0, port?.host_address)).toBe(true)
      for (const address of [...outside.hostAddresses, port?.host_address])
        refused.push(`${address}:${port?.host_port}`)
      const plain = await makeMember(stranger, theirs.id, { nics: [] })
      const { NetworkSettings } = await (await containerOf(plain)).inspect()
      const addresses = Object.values(NetworkSettings.Networks).map(({ IPAddress }) => IPAddress)
      refused.push(...addresses.map((address) => `${address}:80`))
      refused.push(
        ...(await uplinkAddresses(host, String(theirs['vpc_id']))).map((address) => `${address}:80`),
      )
    }
    const ip_address = '10.0.0.77'
    const guest = await stranger.microvms.create({
      command: ['sh', '-c', server],
      nics: [{ subnet_id: theirs.id, ip_address }],
    })
    await guest.operation.success()
    const beside = await makeMember(stranger, theirs.id)
    expect(await get(beside, ip_address)).toBe(guest.body.name)
    refused.push(`${ip_address}:80`)
    silent.push(ip_address)
  }

  beforeAll(async () => {
    outside = await makeOutside()
    api = await startOwnApi({ KEELSON_API_HOST: '0.0.0.0' }, ownApi)
    for (const port of platformPorts()) expect([port, await accepts(port)]).toEqual([port, true])
    const machine = outside.hostAddresses.filter((address) => !address.startsWith('127.'))
    expect(machine.length).toBeGreaterThan(3)
    for (const address of machine)
      refused.push(...[80, ...platformPorts()].map((port) => `${address}:${port}`))
    silent.push(...machine)
    refused.push(`${outside.metadataAddress}:80`, 'fd00:ec2::254:80')
    expect(await seen.get(namespaceOf(second) ?? '', outside.metadataAddress)).toBe('outside')
    expect(await accepts(ownApi, machine[0])).toBe(true)
    await makeStrangers()

    tenant = await makeTenant()
    const vpc = await makeVpc(tenant)
    subnet = (await makeSubnet(tenant, vpc.id)).id
    await open([second])
    neighbour = await makeMember(tenant, subnet)
    for (const host of hosts) uplinks.push(...(await uplinkAddresses(host, vpc.id)))
    refused.push(...uplinks.map((address) => `${address}:80`))
  })
  afterAll(async () => {
    closeConsoles()
    await removeTenants()
    await api.stop()
    await outside.remove()
    await closeFurther()
  })

  async function insideOf(kind: Kind): Promise<(script: string) => Promise<string>> {
    if (kind !== 'microvm') {
      const member = await makeMember(tenant, subnet, kind === 'container' ? {} : { nics: [] })
      return (script) => inside(member, ['sh', '-c', script])
    }
    const { id, operation } = await tenant.microvms.create({
      memory_mib: 128,
      nics: [{ subnet_id: subnet }],
    })
    await operation.success()
    return (script) => outputOf(tenant, id, script)
  }

  const all = kinds.flatMap((kind) => [0, 1].map((index) => ({ kind, index })))
  // Each kind of member and each host once; the long form combines them all.
  const few = all.filter(
    ({ kind, index }) => kind.endsWith('NICs') || (kind === 'container') === (index === 0),
  )
  test.each(isLong ? all : few)(
    'as a $kind on host $index reaches its neighbour and the outside, but no platform, host, tenant or cloud address',
    async ({ kind, index }) => {
      await open(hosts.slice(index, index + 1))
      const run = await insideOf(kind)
      // Only the further hosts have this outside.
      const near = kind.endsWith('NICs') ? [] : [`${addressOf(neighbour)}:80`]
      const allowed = [...near, ...(index > 0 ? [`${outside.address}:80`] : [])]
      // Without a NIC, an address of the VPC is one of the outside, where anything may answer at it.
      const isInVpc = (target: string): boolean => kind.endsWith('NICs') && target.startsWith('10.0.0.')
      const ours = (target: string): boolean =>
        (index > 0 || !furtherEngines.test(target)) && !isInVpc(target)
      const tried = [...new Set([...refused.filter(ours), ...allowed])]
      expect(await connected(run, tried)).toEqual(allowed.toSorted())
      const beyond = index > 0 ? [outside.address] : []
      const told = [...new Set([...uplinks, ...outside.hostAddresses, outside.metadataAddress, ...beyond])]
      const datagrams = (as: string | null, expected: string[]) =>
        expect(arrived({ run, outside }, told, as, expected)).resolves.toEqual(expected)
      await datagrams(null, beyond)
      if (kind !== 'microvm') return // it may neither ping nor take another address
      await datagrams('10.0.0.200', beyond) // an address of its own subnet
      for (const strangers of ['198.51.100.9', outside.address, ...uplinks]) await datagrams(strangers, [])
      const asked = [...silent.filter(ours), addressOf(neighbour)]
      expect(await pinged(run, asked)).toEqual([addressOf(neighbour)])
    },
  )
})

/** Both ends of a VPC's uplink on a host; none where it has no member there. */
async function uplinkAddresses(host: TestHost, vpcId: string): Promise<string[]> {
  const names = new Names(host.id)
  const link = (await linksOf(namespaceOf(host))).get(names.uplink(vpcId))
  const inner = link && (await linksOf(names.vpc(vpcId))).get('uplink')
  return [link, inner].flatMap(
    (end) => end?.addr_info.flatMap(({ local, family }) => (family === 'inet' ? local : [])) ?? [],
  )
}
