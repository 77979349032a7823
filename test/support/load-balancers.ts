import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { type Agent, type IncomingMessage, request } from 'node:http'
import { type Agent as TlsAgent, request as tlsRequest } from 'node:https'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect } from '@jest/globals'
import { openHaproxy } from '../../drivers/haproxy/engine.ts'
import { type HaproxySettings, LoadBalancerHost } from '../../drivers/haproxy/host.ts'
import { batch, namespaceFile } from '../../drivers/linux/commands.ts'
import { listGroups } from '../../drivers/linux/groups.ts'
import { makeNamespace, removeNamespace } from '../../drivers/linux/namespaces.ts'
import type {
  LoadBalancerEngine,
  LoadBalancerSpec,
  RouteSpec,
  TargetSpec,
} from '../../drivers/load-balancers.ts'
import { makeHostPorts } from '../../drivers/system/host-ports.ts'
import { processesWith } from '../../drivers/system/programs.ts'
import { newId } from '../../lib/ids.ts'
import { asRoot } from './as-root.ts'
import { type Authority, makeAuthority } from './certificates.ts'
import { eventually } from './eventually.ts'
import { foldersBegin, namespacesOf } from './load-balancer-names.ts'

// A host with load balancers, and targets in a namespace of their own, as members of a subnet.

export let settings: HaproxySettings
export let balancers: LoadBalancerEngine
export let authority: Authority
/** The last port of the range that the engine publishes. */
export let lastPort: number

const unique = String(process.pid % 100_000)
const namespaces = namespacesOf(unique)
export const targetAddresses = ['10.9.0.10', '10.9.0.11', '10.9.0.12']
/** Nothing answers here. */
export const noTarget = '10.9.0.99'

let backend: ChildProcess | null = null

/** Ends the engine and opens the next one, as when the host's worker restarts. */
export async function anotherEngine(): Promise<void> {
  await balancers.close()
  balancers = await openHaproxy(settings)
}

export async function startTargets(): Promise<void> {
  const { cert, key } = await authority.issue(['backend.test'])
  const encoded = [key, cert].map((text) => Buffer.from(text).toString('base64'))
  const program = [process.execPath, join(import.meta.dirname, 'lb-backend.ts'), ...encoded]
  backend = spawn('nsenter', [`--net=${namespaceFile(namespaces.targets)}`, ...program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(backend.stdout as NonNullable<ChildProcess['stdout']>, 'data')
}

export async function killTargets(): Promise<void> {
  if (!backend || backend.exitCode !== null || backend.signalCode !== null) return
  backend.kill('SIGKILL')
  await once(backend, 'exit')
}

async function makeNetwork(): Promise<void> {
  const { member, targets } = namespaces
  for (const name of [member, targets]) await makeNamespace(name)
  await batch('ip', member, [
    ['link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', targets],
    ['address', 'add', '10.9.0.2/24', 'dev', 'eth0'],
    ['link', 'set', 'eth0', 'up'],
    ['link', 'set', 'lo', 'up'],
  ])
  await batch('ip', targets, [
    ...targetAddresses.map((address) => ['address', 'add', `${address}/24`, 'dev', 'eth0']),
    ['link', 'set', 'eth0', 'up'],
    ['link', 'set', 'lo', 'up'],
  ])
}

/** Runs tests with an engine and targets; nothing of a load balancer may be left after each. */
export const withLoadBalancers = (name: string, tests: () => void): void =>
  asRoot(name, () => {
    let folder: string
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), `${foldersBegin}${unique}-`))
      authority = await makeAuthority()
      await makeNetwork()
      await startTargets()
      // Files run side by side, and HAProxy would share a port with another HAProxy.
      const worker = Number(process.env['JEST_WORKER_ID'] ?? '1')
      const base = Number(process.env['KEELSON_TEST_PORT_BASE'] ?? '25000') + 800 + 50 * ((worker - 1) % 2)
      lastPort = base + 49
      settings = {
        hostId: newId(),
        folder: join(folder, 'kept'),
        run: join(folder, 'run'),
        ports: makeHostPorts({ address: '127.0.0.1', range: [base, lastPort] }),
      }
      balancers = await openHaproxy(settings)
    })
    afterEach(async () => {
      for (const { id } of await balancers.list()) await balancers.remove(id)
      expect(await traces()).toEqual([])
    })
    afterAll(async () => {
      await balancers?.close()
      await killTargets()
      for (const space of Object.values(namespaces)) await removeNamespace(space)
      await rm(folder, { recursive: true, force: true })
    })
    tests()
  })

/** Everything of this host's load balancers on this machine: files, processes, control groups, names. */
export async function traces(): Promise<string[]> {
  const { mark } = new LoadBalancerHost(settings as never)
  const processes = [...(await processesWith(settings.folder)), ...(await processesWith(settings.run))]
  return [
    ...(await readdir(settings.folder)),
    ...(await readdir(settings.run).catch(() => [])),
    ...processes.map(({ args }) => args.join(' ')),
    ...(await listGroups(mark)),
    ...(await readdir('/run/netns')).filter((name) => name.includes(mark)),
  ]
}

export const target = (over: Partial<TargetSpec> = {}): TargetSpec => ({
  id: newId(),
  address: '10.9.0.10',
  port: null,
  weight: 1,
  state: 'active',
  ...over,
})

/** A route that takes everything to the first target. */
export const route = (over: Partial<RouteSpec> = {}): RouteSpec => ({
  id: newId(),
  priority: 100,
  host_match: null,
  listener_port: null,
  path_match: null,
  path_match_type: 'prefix',
  method: null,
  prefix_rewrite: null,
  redirect: null,
  redirect_to_https: false,
  request_headers_add: {},
  request_headers_remove: [],
  response_headers_add: {},
  response_headers_remove: [],
  idle_timeout_sec: 60,
  request_timeout_sec: 30,
  backend_port: 80,
  backend_tls: false,
  backend_sni: null,
  backend_ca_trust_id: null,
  sticky: false,
  targets: [target()],
  ...over,
})

/** A load balancer with one listener for HTTP. */
export const balancer = (over: Partial<LoadBalancerSpec> = {}): LoadBalancerSpec => ({
  id: newId(),
  tenant_id: newId(),
  namespace: namespaces.member,
  listeners: [{ port: 80, host_port: null, protocol: 'http', certificate_ids: [], redirect_to_https: false }],
  health_check: {
    path: null,
    interval_sec: 1,
    timeout_sec: 1,
    healthy_after: 1,
    unhealthy_after: 2,
    expect_status: null,
  },
  routes: [],
  certificates: [],
  ca_trusts: [],
  challenges: [],
  log_cap_mib: 10,
  ...over,
})

export async function certificateFor(...names: string[]): Promise<{ id: string; pem: string }> {
  const { cert, key } = await authority.issue(names)
  return { id: newId(), pem: `${key}\n${cert}\n` }
}

/** The host port of a listener. */
export async function portOf(id: string, port = 80): Promise<number> {
  const found = (await balancers.find(id))?.ports.find((one) => one.port === port)
  if (!found) throw new Error(`no port ${port}`)
  return found.host_port
}

export interface Answer {
  status: number
  headers: Record<string, string | string[] | undefined>
  text: string
  /** What the target says that it got; undefined if it was not reached. */
  got: Got | undefined
}

export interface Got {
  method: string
  url: string
  version: string
  headers: Record<string, string | undefined>
  address: string
  from: string
  sni: string | null
  bytes: number
  body: string
}

export interface Asking {
  method?: string
  host?: string
  headers?: Record<string, string | string[]>
  body?: string | Buffer
  tls?: { servername?: string }
  agent?: Agent | TlsAgent
}

/** `to`: a port of this machine, or where else a listener is. */
export async function ask(
  to: number | { address: string; port: number },
  path: string,
  asking: Asking = {},
): Promise<Answer> {
  const { method = 'GET', host = 'site.test', headers = {}, body, tls, agent } = asking
  const { address, port } = typeof to === 'number' ? { address: '127.0.0.1', port: to } : to
  const options = {
    host: address,
    port,
    path,
    method,
    headers: { host, ...headers },
    ...(agent ? { agent } : {}),
  }
  const sent = tls
    ? tlsRequest({ ...options, ca: authority.cert, servername: host, ...tls })
    : request({ agent: false, ...options })
  sent.end(body)
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  const parts: Buffer[] = []
  for await (const part of response) parts.push(part as Buffer)
  const text = Buffer.concat(parts).toString()
  return { status: response.statusCode ?? 0, headers: response.headers, text, got: gotOf(text) }
}

function gotOf(text: string): Got | undefined {
  try {
    return JSON.parse(text) as Got
  } catch {
    return undefined
  }
}

/** Sends bytes as they are, and returns all that comes back until the connection ends or is silent for a while. */
export async function raw(port: number, bytes: string, silentMs = 300): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  const parts: Buffer[] = []
  socket.on('error', () => {})
  socket.on('data', (part: Buffer) => parts.push(part))
  socket.setTimeout(silentMs, () => socket.destroy())
  socket.write(bytes, 'latin1')
  await once(socket, 'close')
  return Buffer.concat(parts).toString('latin1')
}

/** Applies, and waits until all active targets are known to be healthy. */
export async function applied(spec: LoadBalancerSpec) {
  const state = await balancers.apply(spec)
  const active = new Set(
    spec.routes.flatMap(({ targets }) => targets.filter((one) => one.state === 'active').map(({ id }) => id)),
  )
  await eventually(async () =>
    (await balancers.find(spec.id))?.targets.every(
      ({ target_id, health }) => !active.has(target_id) || health !== 'unknown',
    ),
  )
  return state
}
