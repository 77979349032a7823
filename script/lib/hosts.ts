import { batch, linksOf, lookAt, run, setSysctls } from '../../drivers/linux/commands.ts'
import { isNamespace, makeNamespace, removeNamespace } from '../../drivers/linux/namespaces.ts'
import { parseCidr, toAddress } from '../../lib/ipv4.ts'
import { shortHash } from './settings.ts'

// Development hosts on one machine: each is a network namespace with an address on a common network. That network is a
// namespace too, so the machine's firewall does not filter it.

export interface DevelopmentHost {
  /** A name below /run/netns. A program runs there by `nsenter --net=/run/netns/NAME`. */
  namespace: string
  /** Its only address, at which the other hosts reach it; `/24`. */
  address: string
}

export interface DevelopmentHosts {
  hosts: DevelopmentHost[]
  /** The namespace of the network between the hosts, and its address there: their default route. */
  underlay: Underlay
}

interface Underlay {
  namespace: string
  address: string
  network: string
  /** The machine's address on that network, at which hosts reach its services, and its link; null without one. */
  machine: { address: string; link: string } | null
}

const bridge = 'underlay'
const firstHost = 11
const machineHost = 254

/**
 * Makes the missing parts of that many hosts, 200 at most; `name` distinguishes them from others on the machine.
 * Existing parts stay as they are. `network` is a `/24`. With `machine`, the hosts and the machine reach each other if
 * its firewall allows it.
 */
export async function makeHosts(
  name: string,
  count: number,
  { network = '10.99.0.0/24', machine = false } = {},
): Promise<DevelopmentHosts> {
  const { first, prefix } = parseCidr(network) ?? { first: 0, prefix: 24 }
  const underlay: Underlay = {
    namespace: `${name}-net`,
    address: toAddress(first + 1),
    network,
    machine: machine ? { address: toAddress(first + machineHost), link: `klh${shortHash(name)}` } : null,
  }
  await makeNamespace(underlay.namespace)
  // It forwards the hosts' packets without filtering.
  await setSysctls(underlay.namespace, ['ipv4/ip_forward=1', 'bridge/bridge-nf-call-iptables=0'])
  const ports = await linksOf(underlay.namespace)
  if (!ports.has(bridge)) {
    await batch('ip', underlay.namespace, [
      ['link', 'set', 'lo', 'up'],
      ['link', 'add', bridge, 'type', 'bridge', 'forward_delay', 0],
      ['address', 'add', `${underlay.address}/${prefix}`, 'dev', bridge],
      ['link', 'set', bridge, 'up'],
    ])
  }

  if (underlay.machine && ports.get(machinePort)?.master !== bridge)
    await joinMachine(name, { ...underlay.machine, prefix }, underlay)

  const hosts: DevelopmentHost[] = []
  for (let index = 0; index < count; index++) {
    const host = { namespace: `${name}-${index + 1}`, address: toAddress(first + firstHost + index) }
    await makeHost(host, `host${index + 1}`, `${host.address}/${prefix}`, underlay)
    hosts.push(host)
  }
  return { hosts, underlay }
}

const machinePort = 'machine'

/** Makes the machine's link, named by a hash because a link's name is short; its alias names the owner. */
async function joinMachine(
  name: string,
  { address, link, prefix }: { address: string; link: string; prefix: number },
  { namespace }: Underlay,
): Promise<void> {
  const alias = `keelson/hosts/${name}`
  if ((await linksOf(null)).has(link)) await batch('ip', null, [['link', 'delete', link]])
  await batch('ip', null, [
    ['link', 'add', link, 'type', 'veth', 'peer', 'name', machinePort, 'netns', namespace],
    ['link', 'set', link, 'alias', alias, 'up'],
    ['address', 'add', `${address}/${prefix}`, 'dev', link],
  ])
  await batch('ip', namespace, [['link', 'set', machinePort, 'master', bridge, 'up']])
}

async function makeHost(
  { namespace }: DevelopmentHost,
  port: string,
  address: string,
  underlay: Underlay,
): Promise<void> {
  await makeNamespace(namespace)
  const { links, routes } = await lookAt(namespace)
  if (routes.some(({ dst }) => dst === 'default')) return // the route is made last
  if (links.has('eth0')) await batch('ip', namespace, [['link', 'delete', 'eth0']])
  await batch('ip', underlay.namespace, [
    ['link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace],
    ['link', 'set', port, 'master', bridge, 'up'],
  ])
  await batch('ip', namespace, [
    ['link', 'set', 'lo', 'up'],
    ['address', 'add', address, 'dev', 'eth0'],
    ['link', 'set', 'eth0', 'up'],
    ['route', 'add', 'default', 'via', underlay.address],
  ])
}

/**
 * Lets the hosts reach what the machine reaches, mainly an image registry, by the machine's address. It adds to the
 * machine's firewall rules as an engine does; `removeHosts` removes them.
 */
export async function openHosts({ underlay }: DevelopmentHosts): Promise<void> {
  const { machine } = underlay
  if (!machine) return
  await batch('ip', underlay.namespace, [['route', 'replace', 'default', 'via', machine.address]])
  for (const [table, rule] of outwardRules(underlay)) {
    const there = await run('iptables', ['--wait', '-t', table, '-C', ...rule]).catch(() => null)
    if (there === null) await run('iptables', ['--wait', '-t', table, '-I', ...rule])
  }
}

const outwardRules = ({ network, machine }: Underlay): [table: string, rule: string[]][] =>
  machine === null
    ? []
    : [
        ['nat', ['POSTROUTING', '-s', network, '!', '-o', machine.link, '-j', 'MASQUERADE']],
        ['filter', ['FORWARD', '-i', machine.link, '-j', 'ACCEPT']],
        ['filter', ['FORWARD', '-o', machine.link, '-j', 'ACCEPT']],
      ]

/** Removes the hosts and their network. First remove what their drivers have made. */
export async function removeHosts({ hosts, underlay }: DevelopmentHosts): Promise<void> {
  // First the links between them: the kernel removes a namespace's links some time after it.
  if (await isNamespace(underlay.namespace)) {
    const links = await linksOf(underlay.namespace)
    const ports = [...links.keys()].filter((link) => link === machinePort || /^host\d+$/.test(link))
    await batch(
      'ip',
      underlay.namespace,
      ports.map((port) => ['link', 'delete', port]),
    )
  }
  for (const { namespace } of [...hosts, underlay]) await removeNamespace(namespace)
  for (const [table, rule] of outwardRules(underlay))
    await run('iptables', ['--wait', '-t', table, '-D', ...rule]).catch(() => null) // it may never have been opened
}
