import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import autocannon from 'autocannon'
import { openHaproxy } from '../../drivers/haproxy/engine.ts'
import type { LoadBalancerSpec, RouteSpec } from '../../drivers/load-balancers.ts'
import { makeHostPorts } from '../../drivers/system/host-ports.ts'
import { newId } from '../../lib/ids.ts'
import { quantile, type Row, ratios, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const run = promisify(execFile)
const rounds = 5
const roundSec = 4
const connections = 20
const routes = 1_000
const firstRequests = 20
const byHandPorts = { http: 28_850, https: 28_851 }
const hostPorts: [number, number] = [28_860, 28_879]
const backendPort = 8_080
const address = '127.0.0.1'

/** The driver's HAProxy against one written by hand, both before the same backend; changes; a route through the API. */
export async function loadBalancers(stack: Stack): Promise<Row[]> {
  return [...(await proxies()), ...(await firstRequestsOfRoutes(stack))]
}

async function proxies(): Promise<Row[]> {
  const folder = await mkdtemp(join(tmpdir(), 'keelson-lb-'))
  const namespace = `keelson-bench-${process.pid}`
  const children: ChildProcess[] = []
  const settings = {
    hostId: newId(),
    folder: join(folder, 'kept'),
    run: join(folder, 'run'),
    ports: makeHostPorts({ address, range: hostPorts }),
  }
  const engine = await openHaproxy(settings)
  const id = newId()
  try {
    await run('ip', ['netns', 'add', namespace])
    await run('ip', ['-n', namespace, 'link', 'set', 'lo', 'up'])
    const pem = await selfSigned(folder)
    children.push(await start(folder, 'backend', backend, namespace))
    children.push(await start(folder, 'by-hand', byHand(folder, namespace)))
    const spec = oneRoute(id, namespace, pem)
    const { ports } = await engine.apply(spec)
    const at = (port: number): number => ports.find((one) => one.port === port)?.host_port ?? 0
    for (const port of [at(80), byHandPorts.http]) await served(port)
    return [
      ...(await throughput(at(80))),
      ...(await handshakes(at(443))),
      ...(await changes(spec, (next) => engine.apply(next))),
    ]
  } finally {
    await engine.remove(id)
    await engine.close()
    for (const child of children) await end(child)
    await run('ip', ['netns', 'delete', namespace])
    await rm(folder, { recursive: true })
  }
}

const backend = `
defaults
  mode http
  timeout client 30s
frontend backend
  bind ${address}:${backendPort}
  http-request return status 200 content-type text/plain string "served"
`

/** The same work: a route, the same headers, health checks, an access log in a file, TLS from 1.2 on; and two threads. */
const byHand = (folder: string, namespace: string): string => `
global
  nbthread 2
  maxconn 5000
  log stdout format raw local0
  ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets
defaults
  mode http
  log global
  option httplog
  unique-id-format %[uuid()]
  retries 3
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend site
  bind ${address}:${byHandPorts.http}
  bind ${address}:${byHandPorts.https} ssl crt ${folder}/certificate.pem alpn h2,http/1.1
  http-request del-header ^(forwarded|x-forwarded-.*|x-real-ip|x-request-id)$ -m reg
  http-request set-header x-forwarded-for %[src]
  http-request set-header x-forwarded-proto http
  http-request set-header x-forwarded-port %[dst_port]
  http-request set-header x-forwarded-host %[req.hdr(host)]
  http-request set-header forwarded for=%[src];proto=http;host="%[req.hdr(host)]"
  http-request set-header x-request-id %[unique-id]
  acl site path_beg /site/
  use_backend targets if site
backend targets
  balance roundrobin
  server target ${address}:${backendPort} namespace ${namespace} check
`

async function selfSigned(folder: string): Promise<string> {
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  await run('openssl', [
    'req',
    '-x509',
    ...kind,
    '-keyout',
    key,
    '-out',
    cert,
    '-subj',
    '/CN=bench',
    '-days',
    '2',
  ])
  const pem = (await Promise.all([key, cert].map((file) => readFile(file, 'utf8')))).join('')
  await writeFile(join(folder, 'certificate.pem'), pem, { mode: 0o600 })
  return pem
}

/** Starts a HAProxy of its own; in the namespace, if there is one. */
async function start(
  folder: string,
  name: string,
  config: string,
  namespace?: string,
): Promise<ChildProcess> {
  const file = join(folder, `${name}.cfg`)
  await writeFile(file, config)
  await run('haproxy', ['-c', '-f', file])
  const program = ['haproxy', '-db', '-f', file]
  const [command = '', ...args] =
    namespace === undefined ? program : ['ip', 'netns', 'exec', namespace, ...program]
  const log = openSync(join(folder, `${name}.log`), 'a')
  const child = spawn(command, args, { stdio: ['ignore', log, 'ignore'] })
  closeSync(log)
  await once(child, 'spawn')
  return child
}

const servedWithinMs = 60_000

/** Waits until requests reach the backend: its checks have passed. */
async function served(port: number): Promise<void> {
  const deadline = Date.now() + servedWithinMs
  while ((await statusOf(`http://${address}:${port}/site/page`).catch(() => 0)) !== 200) {
    if (Date.now() > deadline) throw new Error(`nothing is served at port ${port}`)
    await delay(50)
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}

const listener = { host_port: null, redirect_to_https: false } as const

const routeTo = (path_match: string): RouteSpec => ({
  id: newId(),
  priority: 100,
  host_match: null,
  listener_port: null,
  path_match,
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
  request_timeout_sec: 60,
  backend_port: backendPort,
  backend_tls: false,
  backend_sni: null,
  backend_ca_trust_id: null,
  sticky: false,
  targets: [{ id: newId(), address, port: null, weight: 1, state: 'active' }],
})

const oneRoute = (id: string, namespace: string, pem: string): LoadBalancerSpec => ({
  id,
  tenant_id: newId(),
  namespace,
  listeners: [
    { ...listener, port: 80, protocol: 'http', certificate_ids: [] },
    { ...listener, port: 443, protocol: 'https', certificate_ids: ['bench'] },
  ],
  health_check: {
    path: null,
    interval_sec: 2,
    timeout_sec: 1,
    healthy_after: 2,
    unhealthy_after: 3,
    expect_status: null,
  },
  routes: [routeTo('/site')],
  certificates: [{ id: 'bench', pem }],
  ca_trusts: [],
  challenges: [],
  log_cap_mib: 64,
})

async function throughput(port: number): Promise<Row[]> {
  const ours = { perSec: [] as number[], p99: [] as number[] }
  const theirs = { perSec: [] as number[], p99: [] as number[] }
  for (let round = 0; round <= rounds; round++)
    for (const [to, into] of [
      [port, ours],
      [byHandPorts.http, theirs],
    ] as const) {
      const url = `http://${address}:${to}/site/page`
      const result = await autocannon({ url, connections, duration: roundSec })
      if (result.non2xx || result.errors) throw new Error(`${result.non2xx + result.errors} requests failed`)
      if (round === 0) continue // warm-up
      into.perSec.push(result.requests.average)
      into.p99.push(result.latency.p99)
    }
  return [
    { what: 'through a load balancer', unit: 'requests/s', figures: ours.perSec },
    { what: 'through HAProxy configured by hand', unit: 'requests/s', figures: theirs.perSec },
    { what: 'ratio', unit: '', figures: ratios(ours.perSec, theirs.perSec), note: '≥ 0.95' },
    { what: 'through a load balancer, p99', unit: 'ms', figures: ours.p99 },
    { what: 'through HAProxy configured by hand, p99', unit: 'ms', figures: theirs.p99 },
  ]
}

async function handshakes(port: number): Promise<Row[]> {
  const [ours, theirs]: number[][] = [[], []]
  for (let round = 0; round <= rounds; round++)
    for (const [to, into] of [
      [port, ours],
      [byHandPorts.https, theirs],
    ] as const) {
      const perSec = await handshakesPerSec(to)
      if (round > 0) into?.push(perSec)
    }
  return [
    { what: 'TLS handshakes of a load balancer', unit: '1/s', figures: ours ?? [] },
    { what: 'the same, HAProxy configured by hand', unit: '1/s', figures: theirs ?? [] },
    { what: 'ratio', unit: '', figures: ratios(ours ?? [], theirs ?? []), note: '≥ 0.95' },
  ]
}

/** Full handshakes, one after another: no session is resumed. */
async function handshakesPerSec(port: number): Promise<number> {
  let count = 0
  const ms = await timed(async () => {
    const { stdout } = await run('openssl', [
      's_time',
      '-connect',
      `${address}:${port}`,
      '-new',
      '-time',
      String(roundSec),
    ])
    count = Number(/(\d+) connections in \d+ real/.exec(stdout)?.[1])
  })
  return (count * 1_000) / ms
}

async function changes(
  spec: LoadBalancerSpec,
  apply: (spec: LoadBalancerSpec) => Promise<unknown>,
): Promise<Row[]> {
  const all = Array.from({ length: routes }, (_, index) => routeTo(`/route/${index}`))
  await apply({ ...spec, routes: all })
  const figures: number[] = []
  for (let round = 0; round < 2 * rounds; round++) {
    all[round] = routeTo(`/other/${round}`)
    figures.push((await timed(() => apply({ ...spec, routes: all }))) / 1_000)
  }
  return [{ what: `one of ${routes.toLocaleString('en')} routes changed`, unit: 's', figures, note: '< 1' }]
}

/** From the request that creates a route to the first one that it serves. */
async function firstRequestsOfRoutes(stack: Stack): Promise<Row[]> {
  const make = async (path: string, body: object): Promise<string> =>
    (await stack.request<{ id: string }>('POST', path, { name: 'bench-load-balancers', ...body })).body.id
  const vpc_id = await make('/api/v1/vpcs', { cidr: '10.92.0.0/16' })
  const subnet_id = await make('/api/v1/subnets', { vpc_id, cidr: '10.92.0.0/24' })
  const ip_address = '10.92.0.11'
  const container = await stack.finish('POST', '/api/v1/containers', {
    name: 'bench-target',
    image: 'busybox',
    command: ['httpd', '-f', '-p', String(backendPort), '-h', '/etc'],
    cpu_cores: 0.1,
    memory_mib: 16,
    nics: [{ subnet_id, ip_address }],
  })
  const { id } = await stack.finish('POST', '/api/v1/load-balancers', {
    name: 'bench-load-balancers',
    subnet_id,
    listeners: [{ port: 80, protocol: 'http' }],
  })
  const own = `/api/v1/load-balancers/${id}`
  const { body } = await stack.request<{
    endpoints: { host_address: string; ports: { host_port: number }[] }[]
  }>('GET', own)
  const endpoint = body.endpoints[0]
  const origin = `http://${endpoint?.host_address}:${endpoint?.ports[0]?.host_port}`
  const figures: number[] = []
  for (let round = 0; round < firstRequests; round++) {
    const path = `/route-${round}`
    const ms = await timed(async () => {
      const { status } = await stack.request('POST', `${own}/routes`, {
        name: `bench-${round}`,
        path_match: path,
        path_match_type: 'prefix',
        prefix_rewrite: '/hostname',
        backend_port: backendPort,
        targets: [{ address: ip_address }],
      })
      if (status !== 201) throw new Error(`a route was answered with ${status}`)
      while ((await statusOf(origin + path)) !== 200) await delay(5)
    })
    figures.push(ms)
  }
  await stack.finish('DELETE', own)
  await stack.finish('DELETE', `/api/v1/containers/${container.id}`)
  await stack.finish('DELETE', `/api/v1/subnets/${subnet_id}`)
  await stack.finish('DELETE', `/api/v1/vpcs/${vpc_id}`)
  return [
    { what: 'POST route to the first request it serves', unit: 'ms', figures, note: 'median < 300' },
    { what: 'the same, p95', unit: 'ms', figures: [quantile(figures, 0.95)] },
  ]
}

async function statusOf(url: string): Promise<number> {
  const response = await fetch(url)
  await response.arrayBuffer()
  return response.status
}
