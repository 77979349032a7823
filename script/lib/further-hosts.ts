import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync } from 'node:fs'
import { hostname, networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { dropStalePids, engineAnswers, engineNetwork } from './engine.ts'
import { makeHosts, openHosts, removeHosts } from './hosts.ts'
import { type Connections, metricsSetting, nodeRole, roleEnv, baseEnv, saysReady, until } from './roles.ts'
import type { RoleSpec } from './role.ts'
import { balancersRun, disksRun, doorsRun, machinesRun, type Layout, shortHash } from './settings.ts'

// Hosts besides this machine, for `script/server --hosts N`: network namespaces, each with its own engine, state folder
// and credential. The host worker itself runs on the machine, where it reaches the API and the gateway.

const run = promisify(execFile)

export interface FurtherHost {
  /** From 2 on: the machine is the first host. */
  index: number
  name: string
  namespace: string
  address: string
  socket: string
  /** The machine's own address on the network between the hosts. */
  machine: string | null
}

const nameOf = (layout: Layout): string => `kl-${shortHash(layout.state)}`
/**
 * The state folder's own /24, from the range for benchmarks between machines, which is used nowhere else (RFC 2544).
 */
const networkOf = (layout: Layout): string =>
  `198.18.${Number.parseInt(shortHash(layout.state).slice(0, 2), 16)}.0/24`
/** The name that an engine gives its bridge. */
const engineBridge = 'docker0'
const engineFolder = (layout: Layout, index: number): string => join(layout.state, `docker-${index}`)
const runFolder = (layout: Layout, index: number): string => join(layout.run, `docker-${index}`)

/** Makes the namespaces of the hosts 2 to `count`, and their routes to the machine and the outside. */
export async function makeFurtherHosts(layout: Layout, count: number): Promise<FurtherHost[]> {
  if (count < 2) return []
  if (process.getuid?.() !== 0)
    throw new Error('--hosts needs root: each further host is a network namespace')
  const made = await makeHosts(nameOf(layout), count - 1, { network: networkOf(layout), machine: true })
  await openHosts(made)
  return made.hosts.map(({ namespace, address }, i) => ({
    index: i + 2,
    name: `${hostname()}-${i + 2}`,
    namespace,
    address,
    socket: join(layout.run, `docker-${i + 2}.sock`),
    machine: made.underlay.machine?.address ?? null,
  }))
}

/** The Docker Engine of a further host. It sees the host's network, and nothing of the machine's. */
export function furtherEngineRole(layout: Layout, { index, namespace, socket }: FurtherHost): RoleSpec {
  const exec = runFolder(layout, index)
  const pidFile = join(layout.run, `docker-${index}.pid`)
  const args = [
    ['--host', `unix://${socket}`],
    ['--data-root', engineFolder(layout, index)],
    ['--exec-root', exec],
    ['--pidfile', pidFile],
    // The same on each host: their networks are separate.
    ['--bip', '172.31.255.1/24'],
    ['--log-level', 'warn'],
    ['--log-opt', 'max-size=10m'],
    ['--log-opt', 'max-file=5'],
    ['--icc=false'],
    ['--live-restore'],
  ]
  return {
    name: `docker-${index}`,
    command: 'nsenter',
    // Not `ip netns exec`, which mounts another /sys, where the engine does not find its cgroups.
    args: [`--net=/run/netns/${namespace}`, 'dockerd', ...args.flat()],
    env: baseEnv(layout),
    prepare: async () => {
      mkdirSync(exec, { recursive: true })
      await dropStalePids(pidFile, exec)
    },
    ready: ({ signal }) =>
      until(signal, async () => {
        if (!(await engineAnswers(`unix://${socket}`))) throw new Error('the engine does not answer')
      }),
    graceMs: 30_000,
  }
}

/** `token` is for the host's first enrolment. */
export function furtherHostRole(
  layout: Layout,
  connections: Connections,
  { index, name, address, socket, namespace }: FurtherHost,
  token: string | null,
): RoleSpec {
  const more = {
    KEELSON_HOST_NAME: name,
    KEELSON_HOST_STATE: join(layout.state, `host-${index}`),
    KEELSON_HOST_DISKS: join(layout.state, `host-${index}/disks`),
    KEELSON_HOST_DISKS_RUN: disksRun(layout, index),
    KEELSON_HOST_MACHINES: join(layout.state, `host-${index}/machines`),
    KEELSON_HOST_MACHINES_RUN: machinesRun(layout, index),
    KEELSON_HOST_LOAD_BALANCERS: join(layout.state, `host-${index}/load-balancers`),
    KEELSON_HOST_LOAD_BALANCERS_RUN: balancersRun(layout, index),
    KEELSON_HOST_DOORS_RUN: doorsRun(layout, index),
    KEELSON_HOST_ADDRESS: address,
    KEELSON_HOST_PLANE_ADDRESS: '127.0.0.1',
    KEELSON_HOST_PORT: String(planePort(layout, index)),
    KEELSON_DOCKER_HOST: `unix://${socket}`,
    KEELSON_HOST_NAMESPACE: namespace,
    KEELSON_CONTAINER_BRIDGE: engineBridge,
    // Their default route leads to the networks that the machine itself reaches.
    KEELSON_NETWORK_REFUSED: [
      ...machinesNetworks(),
      ...engineNetwork(layout),
      process.env['KEELSON_NETWORK_REFUSED'] ?? '',
    ].join(','),
    ...metricsSetting(layout, 'host', index - 1),
    ...(token ? { KEELSON_HOST_TOKEN: token } : {}),
  }
  return {
    ...nodeRole(layout, `host-${index}`, 'worker/host.ts'),
    env: roleEnv(layout, 'host', connections, more),
    ready: saysReady,
    graceMs: 15_000,
  }
}

/** Whole networks: a bridge has containers besides the machine's own address. Without a container, Node leaves it out. */
const machinesNetworks = (): string[] =>
  Object.values(networkInterfaces())
    .flat()
    .flatMap((one) => (one?.family === 'IPv4' && one.cidr && !one.internal ? [one.cidr] : []))

export const planePort = (layout: Layout, index: number): number => layout.hostPort + 10 * (index - 1)

/** Copies the first host's images, of those that it has, to the hosts' engines, which start empty. */
export async function copyImages(from: string, hosts: FurtherHost[], wanted: string[]): Promise<void> {
  if (hosts.length === 0) return
  const images = await imagesThere(from, wanted)
  for (const { socket } of hosts) {
    const env = { ...process.env, DOCKER_HOST: `unix://${socket}` }
    const there = await run('docker', ['image', 'inspect', ...images], { env }).catch(() => null)
    if (there) continue
    const save = spawn('docker', ['save', ...images], {
      env: { ...process.env, DOCKER_HOST: from },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const load = spawn('docker', ['load', '--quiet'], { env, stdio: [save.stdout, 'ignore', 'inherit'] })
    const [code] = (await once(load, 'exit')) as [number | null]
    if (code !== 0) throw new Error(`the images ${images.join(' ')} were not loaded`)
  }
}

/** A machine without a registry and mmdebstrap has no image of machines. */
async function imagesThere(dockerHost: string, images: string[]): Promise<string[]> {
  const env = { ...process.env, DOCKER_HOST: dockerHost }
  const there = await Promise.all(
    images.map((image) =>
      run('docker', ['image', 'inspect', image], { env }).then(
        () => [image],
        () => [],
      ),
    ),
  )
  return there.flat()
}

/** The indexes of the hosts whose engines are in this state folder. */
export function furtherIndexes(layout: Layout): number[] {
  const entries = existsSync(layout.state) ? readdirSync(layout.state) : []
  return entries.flatMap((entry) => Number(/^docker-(\d+)$/.exec(entry)?.[1] ?? []))
}

/** Removes the namespaces, in which nothing may run any more. */
export async function removeFurtherHosts(layout: Layout): Promise<void> {
  const count = Math.max(1, ...furtherIndexes(layout))
  if (count < 2) return
  await removeHosts(await makeHosts(nameOf(layout), count - 1, { network: networkOf(layout), machine: true }))
}
