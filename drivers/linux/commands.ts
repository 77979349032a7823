import { HostNotEquipped, NetworkFailed, NotPermitted } from '../errors.ts'
import { run as runProgram, stderrOf } from '../system/programs.ts'

// A command takes milliseconds, or seconds when it waits for a kernel lock or on a very busy host.
const timeoutMs = 20_000

/**
 * Runs a program and returns its output. Throws HostNotEquipped, NotPermitted; NetworkFailed if it fails or takes too
 * long.
 */
export async function run(tool: string, args: string[], input?: string): Promise<string> {
  try {
    return await runProgram(tool, args, { input, signal: AbortSignal.timeout(timeoutMs) })
  } catch (error) {
    throw asFault(tool, args, error)
  }
}

function asFault(tool: string, args: string[], error: unknown): Error {
  if (error instanceof HostNotEquipped) return error
  const words = stderrOf(error)
  const cause = new Error(`${tool} ${args.join(' ')}: ${words.trim() || String(error)}`, { cause: error })
  // The messages of `nsenter` and `sh` about a missing program.
  const [, missing] = /(?:failed to execute|exec:) (\S+): (?:No such file|not found)/.exec(words) ?? []
  if (missing) return new HostNotEquipped(`the program ${missing}`, cause)
  const denied = /Operation not permitted|Permission denied/.test(words) || codeOf(error) === 'EACCES'
  return denied ? new NotPermitted(cause) : new NetworkFailed(cause)
}

const codeOf = (error: unknown): unknown =>
  ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code

/** A network namespace: its name in /run/netns, that of a process, or null for this process's. */
export type Namespace = string | { pid: number } | null

export const namespaceFile = (namespace: string | { pid: number }): string =>
  typeof namespace === 'string' ? `/run/netns/${namespace}` : `/proc/${namespace.pid}/ns/net`

/** Runs any program in a namespace. Not `ip netns exec`, which mounts another /sys. */
export const runIn = (namespace: Namespace, tool: string, args: string[], input?: string): Promise<string> =>
  namespace === null
    ? run(tool, args, input)
    : run('nsenter', [`--net=${namespaceFile(namespace)}`, tool, ...args], input)

/** `ip` and `bridge` enter a named namespace themselves, which saves a process. */
const ipTool = (
  tool: 'ip' | 'bridge',
  namespace: Namespace,
  args: string[],
  input?: string,
): Promise<string> =>
  typeof namespace === 'string'
    ? run(tool, ['-n', namespace, ...args], input)
    : runIn(namespace, tool, args, input)

/** Commands of `ip` or `bridge`, as words. */
export type Lines = (string | number)[][]

/** Runs the lines in one process and stops at the first failure. */
export async function batch(tool: 'ip' | 'bridge', namespace: Namespace, lines: Lines): Promise<void> {
  if (lines.length === 0) return
  const text = lines.map((words) => `${words.join(' ')}\n`).join('')
  await ipTool(tool, namespace, ['-batch', '-'], text)
}

export interface Link {
  ifindex: number
  ifname: string
  /** The other end of a veth, and its namespace if it is another. */
  link_index?: number
  flags: string[]
  mtu: number
  master?: string
  address: string
  ifalias?: string
  linkinfo?: { info_kind?: string; info_data?: Record<string, unknown> }
  addr_info: { family: string; local: string; prefixlen: number }[]
  stats64?: { rx: { bytes: number }; tx: { bytes: number } }
}

export type Links = Map<string, Link>

export interface Route {
  dst: string
  gateway?: string
  dev?: string
  protocol?: string
}

export interface Neighbour {
  dst: string
  dev: string
  lladdr: string
}

/** A namespace's links with their addresses, routes of all tables, and permanent IPv4 neighbours. */
export interface Seen {
  links: Links
  routes: Route[]
  routes6: Route[]
  neighbours: Neighbour[]
}

/** One process for all queries, because each process takes milliseconds. */
export async function lookAt(namespace: Namespace): Promise<Seen> {
  const questions = ['address show', 'route show table all', 'neighbour show nud permanent']
  const text = questions.map((question) => `${question}\n`).join('')
  const answer = await ipTool('ip', namespace, ['-json', '-details', '-batch', '-'], text)
  const [links = [], routes = [], neighbours = []] = answer
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as unknown[])
  return {
    links: asLinks(links as Partial<Link>[]),
    routes: (routes as Route[]).filter((route) => !isOfIPv6(route)),
    routes6: (routes as Route[]).filter(isOfIPv6),
    neighbours: (neighbours as Neighbour[]).filter(({ dst }) => !dst.includes(':')),
  }
}

const isOfIPv6 = ({ dst, gateway }: Route): boolean => `${dst}${gateway}`.includes(':')

/** All links with their addresses. */
export const linksOf = async (namespace: Namespace): Promise<Links> =>
  asLinks(await ask('ip', namespace, '-details', 'address', 'show'))

const asLinks = (all: Partial<Link>[]): Links =>
  new Map(all.flatMap((link) => (link.ifname ? [[link.ifname, link as Link]] : [])))

async function ask<T>(tool: 'ip' | 'bridge', namespace: Namespace, ...args: string[]): Promise<T[]> {
  const answer = await ipTool(tool, namespace, ['-json', ...args])
  return JSON.parse(answer || '[]') as T[]
}

/** The default forwarding entries of VXLAN links, for destinations without an entry of their own. */
export async function floodPeers(namespace: Namespace): Promise<{ dst: string; ifname: string }[]> {
  const entries = await ask<{ mac: string; dst?: string; ifname: string }>('bridge', namespace, 'fdb', 'show')
  return entries.flatMap(({ mac, dst, ifname }) =>
    mac === '00:00:00:00:00:00' && dst ? [{ dst, ifname }] : [],
  )
}

export const bytesOf = async (namespace: Namespace, link: string): Promise<Link['stats64'] | undefined> =>
  (await ask<Link>('ip', namespace, '-statistics', 'link', 'show', 'dev', link))[0]?.stats64

const setSettings = `
for setting; do
  file=/proc/sys/net/\${setting%=*}
  value=\${setting#*=}
  [ ! -e "$file" ] || [ "$(cat "$file")" = "$value" ] || echo "$value" >"$file" || exit 1
done`

/**
 * Sets kernel settings in /proc/sys/net, as `file=value`; each namespace has its own. Skips settings that this kernel
 * lacks.
 */
export const setSysctls = (namespace: Namespace, settings: string[]): Promise<string> =>
  runIn(namespace, 'sh', ['-c', setSettings, 'sh', ...settings])

/** Like `setSysctls`, and replaces firewall tables in one kernel transaction. */
export const setRules = (namespace: Namespace, text: string, settings: string[] = []): Promise<string> =>
  runIn(namespace, 'sh', ['-c', `${setSettings}\nexec nft -f -`, 'sh', ...settings], text)

/** Gives the link exactly this IPv4 address. */
export function addressLines(link: Link | undefined, name: string, wanted: string): Lines {
  const have = (link?.addr_info ?? [])
    .filter(({ family }) => family === 'inet')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
  return [
    ...have
      .filter((address) => address !== wanted)
      .map((address) => ['address', 'delete', address, 'dev', name]),
    ...(have.includes(wanted) ? [] : [['address', 'add', wanted, 'dev', name]]),
  ]
}
