import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { HostNotEquipped } from '../errors.ts'
import { confined } from '../system/confinement.ts'
import { killProcesses, livingProcess, processIds, stderrOf } from '../system/programs.ts'
import {
  batch,
  type Lines,
  type Link,
  type Links,
  type Namespace,
  type Route,
  run,
  runIn,
  setSysctls,
} from './commands.ts'
import type { Host, Tunnel, TunnelSettings } from './host.ts'
import type { Names } from './names.ts'
import { tunnelAddress } from './tunnel-keys.ts'
import type { PeerHost } from '../networks.ts'

// The tunnel between hosts: one WireGuard device in the host's namespace, through which VXLAN goes. It is the kernel's, or
// wireguard-go's where the kernel has none. `wg` configures both. It is there while this host shares a VPC with another.

/**
 * With it, a host greets each new peer, and each after its own start. Otherwise a packet to a peer that does not know this
 * host yet would wait 5 s for the next try. It also keeps the way open through firewalls.
 */
const keepaliveSec = 25

/**
 * Two hosts that greet each other in the same moment both answer, and both drop the other's answer: each tries again after 5 s
 * (2 of 25 tries here). So the one with the greater key waits this long for the other's greeting before its own. It is longer
 * than a packet takes from host to host, also on a busy host.
 */
const waitsMs = 300

/**
 * A greeting is lost if the other host does not know this one yet, or greets in the same moment all the same. WireGuard's own
 * next try is after 5 s, and a packet waits 3 s for the address that it goes to. A peer that is made anew is greeted at once.
 */
const againAfterMs = [500, 1_000, 2_000]

/** What VXLAN adds to a packet over IPv6: the tunnel's MTU is the members' and this. */
const vxlanBytes = 70

/** The address of this host to which other hosts send VXLAN; null if they cannot. */
export const ownEnd = ({ tunnel, underlayAddress }: Host): string | null =>
  tunnel ? tunnelAddress(tunnel.keys.public_key) : underlayAddress

/**
 * The addresses to which this host sends VXLAN. A host that is set differently is left out: nothing leaves this one's
 * tunnel, and nothing comes in beside it.
 */
export const peerEnds = ({ tunnel, underlayAddress }: Host, peers: PeerHost[]): string[] => {
  if (!underlayAddress) return []
  return peers.flatMap(({ address, tunnel_key: key }) =>
    tunnel ? (key ? tunnelAddress(key) : []) : key ? [] : address,
  )
}

/** The words of `wg set` for each peer, by key. A peer has one address in the tunnel, and no other is taken from it. */
export function tunnelPeers({ keys, port }: TunnelSettings, peers: PeerHost[]): Map<string, string> {
  const others = peers.flatMap(({ address, tunnel_key: key }) => (key ? { address, key } : []))
  return new Map(
    others
      .filter(({ key }) => key !== keys.public_key)
      .map(({ address, key }) => [
        key,
        `endpoint ${address}:${port} persistent-keepalive ${keepaliveSec} allowed-ips ${tunnelAddress(key)}/128`,
      ]),
  )
}

/** The peers of `after` that are not in `before`, and that this host greets only after it has waited for their greeting. */
export const greetedLater = (
  { keys }: TunnelSettings,
  before: Map<string, string> | null,
  after: Map<string, string>,
): string[] => [...after.keys()].filter((key) => keys.public_key > key && !before?.has(key))

/** The words of `wg set` for peers that are not greeted yet. */
export const silentPeers = (peers: Map<string, string>, silent: string[]): Map<string, string> =>
  new Map(
    [...peers].map(([key, words]) => [
      key,
      silent.includes(key)
        ? words.replace(`persistent-keepalive ${keepaliveSec}`, 'persistent-keepalive 0')
        : words,
    ]),
  )

/** The whole configuration, for `wg syncconf`. */
export const tunnelConfiguration = ({ keys, port }: TunnelSettings, peers: Map<string, string>): string =>
  [
    '[Interface]',
    `PrivateKey = ${keys.private_key}`,
    `ListenPort = ${port}`,
    ...[...peers].flatMap(([key, words]) => {
      const [, endpoint, , keepalive, , allowed] = words.split(' ')
      return [
        '[Peer]',
        `PublicKey = ${key}`,
        `Endpoint = ${endpoint}`,
        `PersistentKeepalive = ${keepalive}`,
        `AllowedIPs = ${allowed}`,
      ]
    }),
    '',
  ].join('\n')

/** The arguments of `wg set` that lead from one set of peers to the other; none if they are equal. */
export function peerChanges(before: Map<string, string>, after: Map<string, string>): string[] {
  const gone = [...before.keys()].filter((key) => !after.has(key))
  const other = [...after].filter(([key, words]) => before.get(key) !== words)
  return [
    ...gone.flatMap((key) => ['peer', key, 'remove']),
    ...other.flatMap(([key, words]) => ['peer', key, ...words.split(' ')]),
  ]
}

/**
 * Brings the tunnel to the peers of these subnets, or removes it if they have none. `links` and `routes6` are the host's.
 * Throws HostNotEquipped.
 */
export async function applyTunnel(
  host: Host,
  { links, routes6 }: { links: Links; routes6: Route[] },
  subnets: { peers: PeerHost[] }[],
): Promise<void> {
  const { tunnel, names, namespace } = host
  const peers = subnets.flatMap((subnet) => subnet.peers)
  const wanted = tunnel && tunnelPeers(tunnel, peers)
  if (!tunnel || !wanted || wanted.size === 0) return removeTunnel(host, links)
  const name = names.tunnel
  if (!links.has(name)) {
    tunnel.applied = null
    await makeDevice(host, tunnel)
  }
  // Not everything each time: wireguard-go opens its port again for a whole configuration, and loses packets.
  const before = tunnel.applied
  tunnel.applied = null // in case it fails
  const later = greetedLater(tunnel, before, wanted)
  const first = silentPeers(wanted, later)
  if (before === null)
    await runIn(namespace, 'sh', ['-c', synchronize, 'sh', name], tunnelConfiguration(tunnel, first))
  else {
    const changes = peerChanges(before, first)
    if (changes.length > 0) await runIn(namespace, 'wg', ['set', name, ...changes])
  }
  tunnel.applied = wanted
  await batch(
    'ip',
    namespace,
    deviceLines(host, links.get(name), routes6, [...wanted.keys()].map(tunnelAddress)),
  )
  const greeted = [...wanted.keys()].filter((key) => !before?.has(key) && !later.includes(key))
  greetAgain(host, greeted)
  if (later.length > 0) afterwards(host, waitsMs, () => greet(host, later))
}

/** Does something with the tunnel after a while. A failure is made good with the next change of a VPC. */
function afterwards(host: Host, ms: number, work: () => Promise<void>): void {
  const attempt = () =>
    work().catch(() => {
      if (host.tunnel) host.tunnel.applied = null
    })
  setTimeout(() => void host.inTurn('host', attempt), ms).unref()
}

/** Greets peers, unless they have gone meanwhile. */
async function greet(host: Host, keys: string[]): Promise<void> {
  const { tunnel, names, namespace } = host
  const peers = keys.filter((key) => tunnel?.applied?.has(key))
  if (peers.length === 0) return
  const words = peers.flatMap((key) => ['peer', key, 'persistent-keepalive', String(keepaliveSec)])
  await runIn(namespace, 'wg', ['set', names.tunnel, ...words])
  greetAgain(host, peers)
}

/** Greets peers that have not answered again, some times. */
function greetAgain(host: Host, keys: string[], [ms, ...later] = againAfterMs): void {
  if (keys.length === 0 || ms === undefined) return
  // Not in the same moment as the other host does.
  afterwards(host, ms * (0.75 + Math.random() / 2), async () => {
    const { tunnel, names, namespace } = host
    const shown = await runIn(namespace, 'wg', ['show', names.tunnel, 'latest-handshakes'])
    const silent = new Map(
      keys.flatMap((key) => {
        const words = tunnel?.applied?.get(key)
        return words && shown.includes(`${key}\t0\n`) ? [[key, words] as const] : []
      }),
    )
    if (silent.size === 0) return
    const remade = [peerChanges(silent, new Map()), peerChanges(new Map(), silent)]
    for (const words of remade) await runIn(namespace, 'wg', ['set', names.tunnel, ...words])
    greetAgain(host, [...silent.keys()], later)
  })
}

/** `wg` opens its input by name, which a socket has not: Node starts programs with sockets. */
const synchronize = 'cat | exec wg syncconf "$1" /dev/stdin'

/** Lines that bring the device up, with its address and a route to each peer. */
function deviceLines(host: Host, link: Link | undefined, routes6: Route[], ends: string[]): Lines {
  const { names } = host
  const name = names.tunnel
  const mtu = host.mtu + vxlanBytes
  const alias = names.label('host', names.host)
  const own = ownEnd(host)
  const addresses = (link?.addr_info ?? [])
    .filter(({ family, local }) => family === 'inet6' && !local.startsWith('fe80'))
    .map(({ local }) => local)
  // The kernel makes some by itself.
  const routes = routes6
    .filter(({ dev, protocol }) => dev === name && protocol !== 'kernel')
    .map(({ dst }) => dst)
  const route = (verb: string, dst: string) => ['route', verb, `${dst}/128`, 'dev', name]
  const isSet = link?.mtu === mtu && link.ifalias === alias && link.flags.includes('UP')
  return [
    ...(isSet ? [] : [['link', 'set', name, 'alias', alias, 'mtu', mtu, 'addrgenmode', 'none', 'up']]),
    ...addresses.filter((one) => one !== own).map((one) => ['address', 'delete', `${one}/128`, 'dev', name]),
    ...(addresses.includes(own ?? '') ? [] : [['address', 'add', `${own}/128`, 'dev', name, 'nodad']]),
    ...routes.filter((dst) => !ends.includes(dst)).map((dst) => route('delete', dst)),
    ...ends.filter((dst) => !routes.includes(dst)).map((dst) => route('add', dst)),
  ]
}

async function makeDevice({ names, namespace }: Host, { program }: Tunnel): Promise<void> {
  const name = names.tunnel
  if (!(await makeInKernel(namespace, name))) {
    if (!existsSync(program)) throw new HostNotEquipped('WireGuard')
    await end(await programs(names)) // one without its device
    // In a session of its own, it does not end with this program. It returns once the device is there.
    const go = confined(['net_admin'], [program, name])
    await runIn(namespace, 'setsid', ['--wait', ...go])
  }
  // The device has an IPv6 address alone, also where the host uses none.
  await setSysctls(namespace, [`ipv6/conf/${name}/disable_ipv6=0`])
}

/** False on a kernel without WireGuard. */
const makeInKernel = (namespace: Namespace, name: string): Promise<boolean> =>
  batch('ip', namespace, [['link', 'add', name, 'type', 'wireguard']]).then(
    () => true,
    (error: unknown) => {
      if (/unknown device type|not supported/i.test(stderrOf(error))) return false
      throw error
    },
  )

/** Also one of another program's, and what a killed wireguard-go left. */
export async function removeTunnel(
  { names, namespace, tunnel }: Pick<Host, 'names' | 'namespace' | 'tunnel'>,
  links: Links,
): Promise<void> {
  const name = names.tunnel
  if (tunnel) tunnel.applied = null
  if (!links.has(name) && !existsSync(socketOf(name))) return
  if (links.has(name)) await batch('ip', namespace, [['link', 'delete', name]])
  await end(await programs(names)) // it ends with its device, but some time later
  await rm(socketOf(name), { force: true })
}

/** Where `wg` finds wireguard-go. */
const socketOf = (name: string): string => `/run/wireguard/${name}.sock`

/** The wireguard-go of this host. */
export async function tunnelPrograms(names: Names): Promise<number[]> {
  return (await programs(names)).map(({ pid }) => pid)
}

const programs = async ({ tunnel }: Names) => {
  const all = await Promise.all((await processIds()).map(livingProcess))
  // Its first argument is the program, and its only other one the device.
  return all.filter((one) => one !== null).filter(({ args }) => args.length === 2 && args[1] === tunnel)
}

const end = (found: { pid: number; args: string[] }[]): Promise<void> =>
  killProcesses(
    found.map(({ pid }) => pid),
    found[0]?.args[1] ?? '',
  )

/** What a host lacks for its tunnel, in words for its operator. Needs root. */
export async function missingForTunnel(
  names: Names,
  namespace: Namespace,
  program: string,
): Promise<string[]> {
  const missing: string[] = []
  if (!existsSync('/proc/sys/net/ipv6')) missing.push('IPv6 in the kernel')
  await run('wg', ['--version']).catch(() => missing.push('the package wireguard-tools'))
  const probe = `${names.tunnel}-probe`
  if (await makeInKernel(namespace, probe)) await batch('ip', namespace, [['link', 'delete', probe]])
  else if (!existsSync(program))
    missing.push(`WireGuard in the kernel, or wireguard-go at ${program}, which script/bootstrap builds`)
  else if (!existsSync('/dev/net/tun')) missing.push('/dev/net/tun')
  return missing
}
