import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { NotPermitted } from '../errors.ts'
import { parseCidr, toAddress } from '../../lib/ipv4.ts'
import { namespaceFile, runIn } from './commands.ts'
import { digest } from '../system/digest.ts'
import { livingProcess, processIds, signalProcess } from '../system/programs.ts'
import { writeIfOther } from './records.ts'
import type { DhcpOptions, SubnetHost, SubnetSpec } from '../networks.ts'

// DHCP and DNS of a subnet: one dnsmasq in the VPC's namespace, listening on the subnet's bridge, with all its files
// in the subnet's folder. The configuration's file name is a hash of its content, so the command line shows the
// running configuration. dnsmasq reads the member lists again on SIGHUP.

const defaults: DhcpOptions = {
  range: null,
  lease_time_sec: 3600,
  dns_servers: [],
  domain_name: 'internal',
  static_leases: [],
}

export interface Resolver {
  /** The subnet's folder. dnsmasq drops root, so other users must be able to enter the folder. */
  folder: string
  namespace: string
  bridge: string
  mtu: number
  /** The resolvers for subnets with `nat` that name none. */
  resolvers: string[]
}

const pidFile = (folder: string): string => join(folder, 'dnsmasq.pid')
const leaseFile = (folder: string): string => join(folder, 'leases')

/**
 * Reconciles the subnet's dnsmasq with the description. `ifindex` is the bridge's: a recreated bridge needs a new
 * dnsmasq.
 */
export async function applyResolver(spec: SubnetSpec, resolver: Resolver, ifindex: number): Promise<void> {
  const { folder, namespace } = resolver
  const members = [...spec.hosts, ...(spec.dhcp?.static_leases ?? [])]
  const text = configuration(spec, resolver, ifindex)
  const config = join(folder, `dnsmasq-${digest(text, 12)}.conf`)
  await writeIfOther(config, text)
  await writeIfOther(
    join(folder, 'hosts'),
    lines(members.map((host) => `${host.mac_address},${host.ip_address}`)),
  )
  await writeIfOther(
    join(folder, 'names'),
    lines(spec.names.map((entry) => `${entry.ip_address} ${entry.name}`)),
  )

  const running = await findResolver(folder)
  if (
    running?.config === config &&
    (await isIn(running.pid, namespace)) &&
    !(await hasStaleLease(folder, members))
  )
    return readAgain(folder, running.pid)

  await endResolver(folder)
  await dropStaleLeases(folder, members)
  for (const file of await configurations(folder)) if (file !== config) await rm(file, { force: true })
  await mustBeOpen(folder)
  await runIn(namespace, 'dnsmasq', [`--conf-file=${config}`]) // returns when dnsmasq listens
  await writeFile(join(folder, 'read'), await listsDigest(folder))
}

/** A running dnsmasq of these folders; null if none runs. */
export async function findAnyResolver(folders: string[]): Promise<number | null> {
  const found = await Promise.all(folders.map(findResolver))
  return found.find((one) => one !== null)?.pid ?? null
}

/** Ends a dnsmasq in a deleted namespace: it would keep the namespace's resources alive, including VXLAN numbers. */
export async function endElsewhere(folder: string, namespace: string): Promise<void> {
  const running = await findResolver(folder)
  if (running && !(await isIn(running.pid, namespace))) await end(running.pid)
}

/** Ends the subnet's dnsmasq, and any without a pid file that a killed call left. */
export async function endResolver(folder: string): Promise<void> {
  await Promise.all((await findResolvers(folder)).map(({ pid }) => end(pid)))
}

/** The running dnsmasq of the folder, if any. Checks the process, because its pid may have been reused. */
async function findResolver(folder: string): Promise<{ pid: number; config: string } | null> {
  const pid = Number(await readFile(pidFile(folder), 'utf8').catch(() => ''))
  const config = pid > 0 ? await configOf(pid) : null
  return config?.startsWith(`${folder}/`) ? { pid, config } : null
}

/** All dnsmasq with a configuration in the folder, including those without a pid file. */
export async function findResolvers(below: string): Promise<{ pid: number; config: string }[]> {
  const found = await Promise.all(
    (await processIds()).map(async (pid) => ({ pid, config: await configOf(pid) })),
  )
  return found.flatMap(({ pid, config }) => (config?.startsWith(`${below}/`) ? [{ pid, config }] : []))
}

/** The configuration of a process that runs dnsmasq; null for other and dead processes. */
async function configOf(pid: number): Promise<string | null> {
  const words = (await livingProcess(pid))?.args ?? []
  const option = words[0]?.endsWith('dnsmasq') ? words[1] : undefined
  return option?.startsWith('--conf-file=') ? option.slice('--conf-file='.length) : null
}

function configuration(spec: SubnetSpec, resolver: Resolver, ifindex: number): string {
  const { folder, bridge, mtu } = resolver
  const dhcp = spec.dhcp ?? defaults
  const { first, prefix } = parseCidr(spec.cidr) ?? { first: 0, prefix: 32 }
  const mask = toAddress(2 ** 32 - 2 ** (32 - prefix))
  const upstream = dhcp.dns_servers.length > 0 ? dhcp.dns_servers : spec.nat ? resolver.resolvers : []
  const range = dhcp.range
  return lines([
    `# interface ${ifindex}`,
    `pid-file=${pidFile(folder)}`,
    `interface=${bridge}`,
    'except-interface=lo',
    'bind-interfaces',
    'no-resolv',
    'no-hosts',
    'expand-hosts',
    `domain=${dhcp.domain_name}`,
    `local=/${dhcp.domain_name}/`, // answers "no IPv6 address"; after a refusal, clients would give up on the name
    `addn-hosts=${join(folder, 'names')}`,
    // Send from the gateway's address: the firewall recognizes the subnet by it.
    ...upstream.map((server) => `server=${server}@${spec.gateway_ip}`),
    'dhcp-authoritative',
    'no-ping', // a ping delays each lease by three seconds, and addresses are assigned anyway
    'quiet-dhcp',
    `dhcp-hostsfile=${join(folder, 'hosts')}`,
    `dhcp-leasefile=${leaseFile(folder)}`,
    `dhcp-range=${toAddress(first)},static,${mask},${dhcp.lease_time_sec}`,
    ...(range ? [`dhcp-range=${range.start},${range.end},${mask},${dhcp.lease_time_sec}`] : []),
    `dhcp-option=option:router,${spec.gateway_ip}`,
    `dhcp-option=option:dns-server,${spec.gateway_ip}`,
    `dhcp-option=option:mtu,${mtu}`,
  ])
}

/** Makes dnsmasq reload its lists (SIGHUP). Records what it loaded, in case this process is killed in between. */
async function readAgain(folder: string, pid: number): Promise<void> {
  const now = await listsDigest(folder)
  if ((await readFile(join(folder, 'read'), 'utf8').catch(() => '')) === now) return
  signalProcess(pid, 'SIGHUP')
  await writeFile(join(folder, 'read'), now)
}

const listsDigest = async (folder: string): Promise<string> =>
  digest(
    (await Promise.all(['hosts', 'names'].map((name) => readFile(join(folder, name), 'utf8')))).join('\n'),
    12,
  )

// A lease of an address's former owner would block its present owner until it expires. dnsmasq drops a lease only when
// it starts without it.

const leases = async (folder: string): Promise<string[]> =>
  (await readFile(leaseFile(folder), 'utf8').catch(() => '')).split('\n').filter(Boolean)

/** `expiry MAC address name client-id` */
function isStale(lease: string, members: SubnetHost[]): boolean {
  const [, mac, address] = lease.split(' ')
  return members.some((host) => host.ip_address === address && host.mac_address.toLowerCase() !== mac)
}

const hasStaleLease = async (folder: string, members: SubnetHost[]): Promise<boolean> =>
  (await leases(folder)).some((lease) => isStale(lease, members))

async function dropStaleLeases(folder: string, members: SubnetHost[]): Promise<void> {
  const all = await leases(folder)
  const kept = all.filter((lease) => !isStale(lease, members))
  if (kept.length < all.length) await writeFile(leaseFile(folder), lines(kept))
}

/** Whether the process is in that namespace, and not in a deleted one of the same name. */
async function isIn(pid: number, namespace: string): Promise<boolean> {
  const [its, named] = await Promise.all(
    [namespaceFile({ pid }), namespaceFile(namespace)].map((file) => stat(file).catch(() => null)),
  )
  return its !== null && its?.ino === named?.ino
}

/** dnsmasq would start without its lists, and say so only in a log. */
async function mustBeOpen(folder: string): Promise<void> {
  for (let path = folder; path !== '/'; path = dirname(path)) {
    const { mode } = await stat(path)
    if ((mode & 0o001) === 0) throw new NotPermitted(new Error(`${path} may not be entered by all users`))
  }
}

const graceMs = 2_000

async function end(pid: number): Promise<void> {
  const config = await configOf(pid)
  for (const name of ['SIGTERM', 'SIGKILL'] as const) {
    signalProcess(pid, name)
    for (const deadline = Date.now() + graceMs; Date.now() < deadline; await delay(5)) {
      if ((await configOf(pid)) !== config) return
    }
  }
}

const configurations = async (folder: string): Promise<string[]> =>
  (await readdir(folder)).filter((name) => /^dnsmasq-.*\.conf$/.test(name)).map((name) => join(folder, name))

const lines = (all: string[]): string => all.map((line) => `${line}\n`).join('')
