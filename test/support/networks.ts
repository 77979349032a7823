import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toAddress, toNumber } from '../../lib/ipv4.ts'
import { batch, linksOf, namespaceFile, run, runIn } from '../../drivers/linux/commands.ts'
import { Names } from '../../drivers/linux/names.ts'
import { newTunnelKeys } from '../../drivers/linux/tunnel-keys.ts'
import { makeNamespace, removeNamespace } from '../../drivers/linux/namespaces.ts'
import { type LinuxNetworkSettings, makeLinuxNetworks } from '../../drivers/linux/networks.ts'
import type { NetworkDriver, NicSpec, PathSpec, PeerHost, SubnetSpec } from '../../drivers/networks.ts'
import {
  type DevelopmentHost,
  type DevelopmentHosts,
  makeHosts,
  removeHosts,
} from '../../script/lib/hosts.ts'
import { readLayout } from '../../script/lib/settings.ts'
import { eventually } from './eventually.ts'

// Hosts, an outside, and members, as network namespaces of the kernel. Tests look at a network from inside a namespace.

const tunnelPort = 7084
/** For a kernel without WireGuard; built by script/bootstrap. */
const wireguard = join(readLayout().tools, 'wireguard/bin/wireguard-go')

export type Place = string | { pid: number }

export interface NetworkHost extends DevelopmentHost {
  networks: NetworkDriver
  settings: LinuxNetworkSettings
  /** What other hosts are told of it. */
  peer: PeerHost
}

/**
 * A web server on port 80 of all addresses in its namespace, which returns its name: an instance, or a host's own
 * service.
 */
export interface Member {
  pid: number
  name: string
}

/** The name that the server at this address returns; null without an answer within `sec` seconds. */
const ask = (from: Place, address: string, sec: number): Promise<string | null> =>
  runIn(from, 'busybox', [
    'timeout',
    `${sec}`,
    'busybox',
    'wget',
    '-q',
    '-O',
    '-',
    `http://${address}/`,
  ]).then(
    (text) => text.trim(),
    () => null,
  )

/** The name of the server at this address. Waits long enough for a busy machine: for what should be reachable. */
export const get = (from: Place, address: string): Promise<string | null> => ask(from, address, 15)

/** The addresses that answer a request or a ping within a second: for what should not be reachable. */
export async function reached(from: Place, addresses: string[]): Promise<string[]> {
  const answers = await Promise.all(
    addresses.map((address) => Promise.all([ask(from, address, 1), pings(from, address, 1)])),
  )
  return addresses.filter((_, i) => answers[i]?.some(Boolean))
}

export const pings = (from: Place, address: string, withinSec = 15): Promise<boolean> =>
  runIn(from, 'busybox', ['ping', '-c', '1', '-W', `${withinSec}`, address]).then(
    () => true,
    () => false,
  )

/** The IPv4 addresses that a resolver returns for a name; none without an answer in time. */
export async function resolve(
  from: Place,
  name: string,
  resolver: string,
  withinSec = 15,
): Promise<string[]> {
  const question = ['timeout', `${withinSec}`, 'busybox', 'nslookup', name, resolver]
  const answer = await runIn(from, 'busybox', question).catch(() => '')
  return [...answer.matchAll(/^Name:.*\nAddress(?: \d+)?: ([\d.]+)$/gm)].flatMap(
    ([, address]) => address ?? [],
  )
}

/** A fabric of hosts, each with its driver, and an outside behind the hosts' default route. */
export class Fabric {
  readonly #dev: DevelopmentHosts
  readonly #folder: string
  readonly #processes: ChildProcess[] = []
  /** The number of servers that belong to the fabric, not to a test. */
  #own = 0
  readonly hosts: NetworkHost[]
  readonly outside: string
  readonly outsideAddress = '203.0.113.10'

  private constructor(dev: DevelopmentHosts, folder: string, hosts: NetworkHost[], outside: string) {
    this.#dev = dev
    this.#folder = folder
    this.hosts = hosts
    this.outside = outside
  }

  /** `tunnel`: whether VXLAN goes through one between the hosts. */
  static async make(count: number, { tunnel = true } = {}): Promise<Fabric> {
    const name = `kt${randomBytes(4).toString('hex')}`
    const folder = await mkdtemp(join(tmpdir(), 'networks-'))
    await chmod(folder, 0o755) // dnsmasq drops root
    const dev = await makeHosts(name, count)
    const hosts = dev.hosts.map((host) => {
      const keys = tunnel ? newTunnelKeys() : null
      const settings: LinuxNetworkSettings = {
        host: host.namespace,
        stateFolder: join(folder, host.namespace),
        hostNamespace: host.namespace,
        underlayAddress: host.address,
        tunnel: keys && { keys, port: tunnelPort, program: wireguard },
        resolvers: [dev.underlay.address],
        refused: [],
      }
      const peer = { address: host.address, tunnel_key: keys?.public_key ?? null }
      return { ...host, settings, networks: makeLinuxNetworks(settings), peer }
    })
    const fabric = new Fabric(dev, folder, hosts, `${name}-out`)
    await fabric.#makeOutside()
    return fabric
  }

  get underlay(): DevelopmentHosts['underlay'] {
    return this.#dev.underlay
  }

  host(index: number): NetworkHost {
    const host = this.hosts[index]
    if (!host) throw new Error(`no host ${index}`)
    return host
  }

  async #makeOutside(): Promise<void> {
    await makeNamespace(this.outside)
    await batch('ip', this.underlay.namespace, [
      ['link', 'add', 'outside', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', this.outside],
      ['address', 'add', '203.0.113.1/24', 'dev', 'outside'],
      ['link', 'set', 'outside', 'up'],
    ])
    await batch('ip', this.outside, [
      ['address', 'add', `${this.outsideAddress}/24`, 'dev', 'eth0'],
      // A cloud's metadata service is as close as this address.
      ['address', 'add', '169.254.169.254/32', 'dev', 'eth0'],
      ['link', 'set', 'eth0', 'up'],
      ['route', 'add', 'default', 'via', '203.0.113.1'],
    ])
    await batch('ip', this.underlay.namespace, [
      ['route', 'add', '169.254.169.254', 'via', this.outsideAddress],
    ])
    await this.serve(this.outside, 'outside')
    // The hosts' resolver, at an address that members must not reach.
    await this.answer(this.underlay.namespace, 'far.test', this.outsideAddress)
    await this.serve(this.underlay.namespace, 'router')
    for (const { namespace } of this.hosts) await this.serve(namespace, 'host')
    this.#own = this.#processes.length
  }

  /** Starts a resolver in the namespace that knows one name. */
  async answer(namespace: string, name: string, address: string): Promise<void> {
    const options = [
      '--keep-in-foreground',
      '--conf-file=/dev/null',
      '--no-resolv',
      '--no-hosts',
      '--pid-file',
    ]
    const dnsmasq = [
      'dnsmasq',
      ...options,
      '--bind-interfaces',
      `--address=/${name}/${address}`,
      `--local=/${name}/`,
    ]
    await this.#start('nsenter', [`--net=${namespaceFile(namespace)}`, ...dnsmasq])
  }

  /** The script for busybox's DHCP client: prints the client's variables. */
  async dhcpScript(): Promise<string> {
    const file = join(this.#folder, 'dhcp')
    const text = '#!/bin/sh\nif [ "$1" = bound ]; then env; fi\n'
    await writeFile(file, text, { mode: 0o755 })
    return file
  }

  /** Starts a host's own service, on all its addresses. */
  async serve(namespace: string, name: string): Promise<Member> {
    return this.#serve(name, 'nsenter', [`--net=${namespaceFile(namespace)}`])
  }

  /** Starts an instance's process, in an empty network namespace. */
  async member(name: string): Promise<Member> {
    const member = await this.#serve(name, 'unshare', ['--net'])
    await batch('ip', member, [['link', 'set', 'lo', 'up']])
    return member
  }

  /** Starts a member behind the host's bridge `docker0`, as an engine makes one. */
  async container(host: NetworkHost, address: string, name: string): Promise<Member> {
    const container = await this.member(name)
    const router = address.replace(/\d+$/, '1')
    await batch('ip', host.namespace, [
      ['link', 'add', 'docker0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', container.pid],
      ['address', 'add', `${router}/24`, 'dev', 'docker0'],
      ['link', 'set', 'docker0', 'up'],
    ])
    await batch('ip', container, [
      ['address', 'add', `${address}/24`, 'dev', 'eth0'],
      ['link', 'set', 'eth0', 'up'],
      ['route', 'add', 'default', 'via', router],
    ])
    return container
  }

  async #serve(name: string, tool: string, args: string[]): Promise<Member> {
    const folder = join(this.#folder, `www-${name}-${randomBytes(3).toString('hex')}`)
    await mkdir(folder)
    await writeFile(join(folder, 'index.html'), `${name}\n`)
    const pid = await this.#start(tool, [...args, 'busybox', 'httpd', '-f', '-p', '80', '-h', folder])
    // The process is in its namespace once it has become the server.
    await eventually(async () => (await run('cat', [`/proc/${pid}/cmdline`])).startsWith('busybox'))
    return { pid, name }
  }

  async #start(tool: string, args: string[]): Promise<number> {
    const child = spawn(tool, args, { stdio: 'ignore' })
    this.#processes.push(child)
    await once(child, 'spawn')
    return child.pid ?? 0
  }

  /** Attaches a new member to a subnet on a host; it returns its name on port 80. */
  async join(
    host: NetworkHost,
    subnet: SubnetSpec,
    address: string,
    name = 'member',
  ): Promise<Member & { nic: NicSpec }> {
    const member = await this.member(name)
    const nic = nicSpec(subnet, address, { pid: member.pid })
    await host.networks.attachNic(nic)
    return { ...member, nic }
  }

  /** Applies a VPC's subnets on all hosts, each host with the others as peers. */
  async applyEverywhere(...subnets: SubnetSpec[]): Promise<void> {
    const each = this.hosts.map(async (host) => {
      const peers = this.hosts.filter((other) => other !== host).map(({ peer }) => peer)
      for (const subnet of subnets) await host.networks.applySubnet({ ...subnet, peers })
    })
    await Promise.all(each)
  }

  async end(member: Member): Promise<void> {
    const child = this.#processes.find(({ pid }) => pid === member.pid)
    if (child) await end(child)
  }

  /** Removes what a test has left on the hosts. */
  async clear(): Promise<void> {
    const ended = this.#processes.splice(this.#own)
    await Promise.all(this.hosts.map(({ networks }) => removeAll(networks)))
    await Promise.all(ended.map(end))
  }

  /** Removes the whole fabric. */
  async remove(): Promise<void> {
    await this.clear()
    await Promise.all(this.#processes.map(end))
    await removeNamespace(this.outside)
    await removeHosts(this.#dev)
    await rm(this.#folder, { recursive: true, force: true })
  }
}

async function removeAll(networks: NetworkDriver): Promise<void> {
  for (const id of (await networks.known()).paths) await networks.removePath(id)
  for (const { kind, of } of await networks.list()) {
    if (kind === 'file' && of.kind === 'subnet' && of.id) await networks.removeSubnet(of.id)
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
}

let numbers = 0
/** A number that is unique in this run. */
export const number = (): number => ++numbers

export const macOf = (last: number): string =>
  `52:54:00:${[16, 8, 0].map((shift) => ((last >> shift) & 255).toString(16).padStart(2, '0')).join(':')}`

/** A subnet in a VPC and a tenant of its own, unless `values` say otherwise. */
export function subnetSpec(values: Partial<SubnetSpec> = {}): SubnetSpec {
  const id = `s-${number()}`
  return {
    id,
    vpc_id: `v-${id}`,
    tenant_id: `t-${id}`,
    cidr: '10.0.0.0/24',
    gateway_ip: '10.0.0.1',
    nat: true,
    vni: number(),
    peers: [],
    dhcp: null,
    hosts: [],
    names: [],
    ...values,
  }
}

export const nicSpec = (
  subnet: SubnetSpec,
  ip_address: string,
  into: NicSpec['into'],
  values: Partial<NicSpec> = {},
): NicSpec => ({
  id: `n-${number()}`,
  subnet_id: subnet.id,
  mac_address: macOf(number()),
  ip_address,
  default_route: true,
  into,
  ...values,
})

/** A path of a member to port 80 of an address in another subnet. The member finds it at port 5432 of `at`. */
export const pathSpec = (
  user: { nic: NicSpec },
  at: { subnet: SubnetSpec; ip_address: string },
  to: { subnet: SubnetSpec; from: string; ip_address: string },
): PathSpec => ({
  id: `p-${number()}`,
  user: { nic_id: user.nic.id, ip_address: user.nic.ip_address },
  port: 5432,
  near: endSpec(at.subnet, at.ip_address),
  far: endSpec(to.subnet, to.from),
  target: { ip_address: to.ip_address, port: 80 },
})

const endSpec = ({ id: subnet_id }: SubnetSpec, ip_address: string) => ({
  id: `n-${number()}`,
  subnet_id,
  mac_address: macOf(number()),
  ip_address,
})

/** The resolver processes of a subnet, from the driver's list. */
export const resolvers = (host: NetworkHost, { id }: SubnetSpec) =>
  host.networks.list().then((all) => all.filter(({ kind, of }) => kind === 'process' && of.id === id))

export async function killResolver(host: NetworkHost, subnet: SubnetSpec): Promise<void> {
  for (const { name } of await resolvers(host, subnet)) process.kill(Number(name), 'SIGKILL')
  await eventually(async () => (await resolvers(host, subnet)).length === 0)
}

/** The addresses of a VPC's uplink: the host's end and the VPC's. */
export async function uplinkOf(
  host: NetworkHost,
  { vpc_id }: SubnetSpec,
): Promise<{ host: string; vpc: string }> {
  const name = new Names(host.settings.host).uplink(vpc_id)
  const address = (await linksOf(host.namespace)).get(name)?.addr_info.find(({ family }) => family === 'inet')
  if (!address) throw new Error('no uplink')
  return { host: address.local, vpc: toAddress(toNumber(address.local) + 1) }
}
