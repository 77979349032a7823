import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { linksOf } from '../../drivers/linux/commands.ts'
import { Names } from '../../drivers/linux/names.ts'
import { makeLinuxNetworks } from '../../drivers/linux/networks.ts'
import { newTunnelKeys, type TunnelKeys } from '../../drivers/linux/tunnel-keys.ts'
import type { NetworkDriver, NicSpec, PeerHost, SubnetSpec } from '../../drivers/networks.ts'
import { type DevelopmentHost, makeHosts, removeHosts } from '../lib/hosts.ts'
import { readLayout } from '../lib/settings.ts'
import { type Row, ratios } from './measure.ts'
import { roundTrip, throughput } from './networks.ts'

const rounds = 5
const addresses = ['10.92.0.11', '10.92.0.12'] as const
const [tunnelPort, vxlanPort] = [28_706, 28_705]

/**
 * From one member to another on two hosts, which are network namespaces on this machine: through the tunnel, and by VXLAN
 * alone, in turns. Both hosts share the machine's cores, so the tunnel pays for sending and for receiving.
 */
export async function tunnels(): Promise<Row[]> {
  const folder = await mkdtemp(join(tmpdir(), 'networks-'))
  await chmod(folder, 0o755) // dnsmasq drops root
  const made = await makeHosts('kt-bench', 2, { network: '10.93.0.0/24' })
  const pairs: Pair[] = []
  try {
    for (const tunnel of [true, false]) pairs.push(await makePair(made.hosts, folder, tunnel))
    const [inTunnel, bare] = pairs as [Pair, Pair]
    const figures = { tunnel: [], bare: [], tunnelUs: [], bareUs: [] } as Record<string, number[]>
    for (let round = 0; round < rounds; round++) {
      figures['tunnel']?.push(await throughput(inTunnel.pids, addresses[1]))
      figures['bare']?.push(await throughput(bare.pids, addresses[1]))
      figures['tunnelUs']?.push(await roundTrip(inTunnel.pids, addresses[1]))
      figures['bareUs']?.push(await roundTrip(bare.pids, addresses[1]))
    }
    const of = (name: string): number[] => figures[name] ?? []
    const by = inTunnel.isInKernel ? 'the kernel’s WireGuard' : 'wireguard-go'
    return [
      { what: `member to member on two hosts, by ${by}, one stream`, unit: 'Gbit/s', figures: of('tunnel') },
      { what: 'the same without a tunnel', unit: 'Gbit/s', figures: of('bare') },
      { what: 'ratio', unit: '', figures: ratios(of('tunnel'), of('bare')) },
      { what: `round trip between two hosts, by ${by}`, unit: 'µs', figures: of('tunnelUs') },
      { what: 'the same without a tunnel', unit: 'µs', figures: of('bareUs') },
    ]
  } finally {
    for (const pair of pairs) await pair.remove()
    await removeHosts(made)
    await rm(folder, { recursive: true, force: true })
  }
}

interface Pair {
  /** Of the members, one on each host. */
  pids: number[]
  isInKernel: boolean
  remove(): Promise<void>
}

/** Two members of one subnet, one on each host. */
async function makePair(hosts: DevelopmentHost[], folder: string, tunnel: boolean): Promise<Pair> {
  const name = tunnel ? 'tunnel' : 'bare'
  const ends = hosts.map((host) => makeEnd(host, folder, name, tunnel ? newTunnelKeys() : null))
  const members: ChildProcess[] = []
  for (const [i, { driver }] of ends.entries()) {
    const peers = ends.filter((one) => one.driver !== driver).map(({ peer }) => peer)
    await driver.applySubnet(subnetOf(name, tunnel ? 92 : 93, peers))
    const member = spawn('unshare', ['--net', 'busybox', 'sleep', '3600'], { stdio: 'ignore' })
    await once(member, 'spawn')
    members.push(member)
    await untilApart(member.pid ?? 0)
    await driver.attachNic(nicOf(name, i, member.pid ?? 0))
  }
  const [first] = ends
  const link = (await linksOf(hosts[0]?.namespace ?? null)).get(new Names(first?.id ?? '').tunnel)
  return {
    pids: members.map(({ pid = 0 }) => pid),
    isInKernel: link?.linkinfo?.info_kind === 'wireguard',
    async remove() {
      for (const { driver } of ends) await driver.removeSubnet(name)
      for (const member of members) member.kill('SIGKILL')
    },
  }
}

function makeEnd(
  { namespace, address }: DevelopmentHost,
  folder: string,
  name: string,
  keys: TunnelKeys | null,
): { id: string; driver: NetworkDriver; peer: PeerHost } {
  const id = `${namespace}-${name}`
  const program = join(readLayout().tools, 'wireguard/bin/wireguard-go')
  const driver = makeLinuxNetworks({
    host: id,
    stateFolder: join(folder, id),
    hostNamespace: namespace,
    underlayAddress: address,
    tunnel: keys && { keys, port: tunnelPort, program },
    resolvers: [],
    refused: [],
    vxlanPort,
  })
  return { id, driver, peer: { address, tunnel_key: keys?.public_key ?? null } }
}

const subnetOf = (id: string, vni: number, peers: PeerHost[]): SubnetSpec => ({
  id,
  vpc_id: id,
  tenant_id: 'bench',
  cidr: '10.92.0.0/24',
  gateway_ip: '10.92.0.1',
  nat: false,
  vni,
  peers,
  dhcp: null,
  hosts: [],
  names: [],
})

const nicOf = (name: string, index: number, pid: number): NicSpec => ({
  id: `${name}-${index}`,
  subnet_id: name,
  mac_address: `52:54:00:00:00:0${index + 1}`,
  ip_address: addresses[index] ?? '',
  default_route: true,
  into: { pid },
})

/** The process is in its own namespace once it has only the loopback link. */
async function untilApart(pid: number): Promise<void> {
  for (;;) if ((await linksOf({ pid })).size === 1) return
}
