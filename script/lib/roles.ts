import { execFile } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { type Role as SettingsRole, roleSettings } from '../../config.ts'
import { engineAnswers, type OwnEngine, prepareEngine } from './engine.ts'
import type { RoleSpec } from './role.ts'
import type { MongodbSecrets } from './secrets.ts'
import { balancersRun, disksRun, doorsRun, machinesRun, type Layout, tool } from './settings.ts'

const run = promisify(execFile)

/** The parts of the operator's environment that every process may have; none is a setting of ours. */
const harmless = [
  'PATH HOME USER LANG LC_ALL TZ TMPDIR NODE_OPTIONS NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR',
  'HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy',
]

export function baseEnv(layout: Layout): Record<string, string> {
  const env: Record<string, string> = { NODE_ENV: 'production' }
  for (const name of harmless.join(' ').split(' ')) if (process.env[name]) env[name] = process.env[name]
  env['PATH'] = `${join(layout.tools, 'node/bin')}:${env['PATH'] ?? '/usr/bin:/bin'}:/usr/sbin:/sbin`
  return env
}

/** The services that roles connect to, known only after the server has looked for them. */
export interface Connections {
  mongodbUrl: string
  temporalAddress: string
  dockerHost: string
  /** The bridge of the server's own engine; null on another engine. */
  bridge: string | null
}

/** The URL of the server's own MongoDB, with the platform's user. */
export const ownMongodbUrl = (layout: Layout, secrets: MongodbSecrets): string =>
  `mongodb://keelson:${secrets.appPassword}@127.0.0.1:${layout.mongodbPort}/keelson?replicaSet=rs0&authSource=keelson`

/**
 * The environment of one role: only the settings that config.ts names for it, so that the host gets neither the MongoDB
 * URL nor the master key. An operator's value overrides ours.
 */
export function roleEnv(
  layout: Layout,
  role: SettingsRole,
  connections: Connections,
  more: Record<string, string> = {},
) {
  const known: Record<string, string> = {
    KEELSON_MASTER_KEY_FILE: join(layout.state, 'master.key'),
    KEELSON_CODEC_KEY_FILE: join(layout.state, 'codec.key'),
    KEELSON_MAIL_FOLDER: join(layout.state, 'mails'),
    KEELSON_WORKFLOW_BUNDLE: join(layout.state, 'build/workflows.js'),
    KEELSON_HOST_STATE: join(layout.state, 'host'),
    // One person's machine: containers start in seconds, where VMs first build their image.
    KEELSON_HOST_CONTAINER_MACHINES: 'true',
    KEELSON_MACHINE_KINDS: machineKinds(),
    KEELSON_EMBEDDERS: join(layout.tools, 'embedder'),
    KEELSON_MODELS_URL: `http://127.0.0.1:${layout.modelsPort}`,
    ...operatorSettings(),
    KEELSON_API_HOST: layout.apiHost,
    KEELSON_API_PORT: String(layout.apiPort),
    KEELSON_API_URL: layout.apiUrl,
    KEELSON_MONGODB_URL: connections.mongodbUrl,
    KEELSON_TEMPORAL_ADDRESS: connections.temporalAddress,
    KEELSON_TEMPORAL_NAMESPACE: layout.temporalNamespace,
    KEELSON_TEMPORAL_UI_URL: layout.temporalUiUrl,
    KEELSON_GATEWAY_PORT: String(layout.gatewayPort),
    KEELSON_GATEWAY_URL: layout.gatewayUrl,
    KEELSON_MODELS_PORT: String(layout.modelsPort),
    KEELSON_DOCKER_HOST: connections.dockerHost,
    ...(connections.bridge ? { KEELSON_CONTAINER_BRIDGE: connections.bridge } : {}),
    KEELSON_HOST_PORT: String(layout.hostPort),
    KEELSON_HOST_PORT_RANGE: layout.hostPortRange,
    KEELSON_RESERVED_PORTS: [
      layout.mongodbPort,
      layout.temporalPort,
      layout.temporalUiPort,
      layout.apiPort,
      operatorSettings()['KEELSON_RESERVED_PORTS'] ?? '',
    ].join(','),
    KEELSON_HOST_DISKS: join(layout.state, 'host/disks'),
    KEELSON_HOST_DISKS_RUN: disksRun(layout, 1),
    KEELSON_HOST_MACHINES: join(layout.state, 'host/machines'),
    KEELSON_HOST_MACHINES_RUN: machinesRun(layout, 1),
    KEELSON_HOST_LOAD_BALANCERS: join(layout.state, 'host/load-balancers'),
    KEELSON_HOST_LOAD_BALANCERS_RUN: balancersRun(layout, 1),
    KEELSON_HOST_DOORS_RUN: doorsRun(layout, 1),
    KEELSON_HOST_GUEST: join(layout.tools, 'guest'),
    KEELSON_HOST_LAUNCHER: join(layout.tools, 'launcher/launcher'),
    KEELSON_HOST_WIREGUARD: join(layout.tools, 'wireguard/bin/wireguard-go'),
    KEELSON_HOST_VM_BUILD: join(layout.repository, 'images/vm/build'),
    KEELSON_HOST_DISK_PORTS: layout.diskPorts,
    KEELSON_VXLAN_PORT: String(layout.vxlanPort),
    KEELSON_TUNNEL_PORT: String(layout.tunnelPort),
    ...more,
  }
  const env = baseEnv(layout)
  // With an arena for each thread, the C library holds 10 to 20 MiB more than a role uses.
  env['MALLOC_ARENA_MAX'] = '2'
  // In bytes, the C library's default. Set, it stays: otherwise it grows with what a start allocates, and each role keeps 10 to
  // 20 MiB of that.
  env['MALLOC_TRIM_THRESHOLD_'] = '131072'
  // Compiled modules: a role's start takes half the CPU time.
  env['NODE_COMPILE_CACHE'] = join(layout.state, 'build/compiled')
  // V8's threads for collecting garbage: its four cost more CPU time than they save (docs/decisions/063).
  env['NODE_OPTIONS'] = ['--v8-pool-size=1', env['NODE_OPTIONS']].filter(Boolean).join(' ')
  for (const name of Object.keys(roleSettings[role].shape))
    if (known[name] !== undefined) env[name] = known[name]
  return env
}

/** What the machines of deploy servers are here. */
export const machineKinds = (): string => operatorSettings()['KEELSON_MACHINE_KINDS'] ?? 'container,vm'

function operatorSettings(): Record<string, string> {
  const set = Object.entries(process.env).filter(
    ([name, value]) => name.startsWith('KEELSON_') && value !== undefined,
  )
  return Object.fromEntries(set) as Record<string, string>
}

/** MongoDB as a replica set of one, which transactions need, with authentication. */
export function mongodbRole(layout: Layout): RoleSpec {
  const data = join(layout.state, 'mongodb')
  mkdirSync(data, { recursive: true })
  return {
    name: 'mongodb',
    command: tool(layout, 'mongod', 'mongodb'),
    args: [
      ['--dbpath', data],
      ['--bind_ip', '127.0.0.1'],
      ['--port', String(layout.mongodbPort)],
      ['--nounixsocket'],
      ['--replSet', 'rs0'],
      ['--keyFile', join(layout.state, 'mongodb.keyfile')], // enables authentication
      // For one machine with other work; the default is half its memory.
      ['--wiredTigerCacheSizeGB', '0.25'],
      ['--oplogSize', '256'],
      ['--setParameter', 'diagnosticDataCollectionEnabled=false'],
      // The transaction of a killed process blocks others until it expires: by default after a minute. Ours take
      // milliseconds.
      ['--setParameter', 'transactionLifetimeLimitSeconds=5'],
    ].flat(),
    env: baseEnv(layout),
    ready: async ({ signal }) => {
      const script = join(layout.repository, 'script/mongodb.ts')
      const args = [script, `127.0.0.1:${layout.mongodbPort}`, join(layout.state, 'mongodb.json')]
      await run(process.execPath, args, { signal, env: baseEnv(layout), timeout: 120_000 })
    },
    graceMs: 30_000,
  }
}

/** Temporal's development server on a file: everything acknowledged survives kill -9. */
export function temporalRole(layout: Layout): RoleSpec {
  const program = tool(layout, 'temporal')
  return {
    name: 'temporal',
    command: program,
    args: [
      'server start-dev --ip 127.0.0.1 --log-level warn --log-format json'.split(' '),
      ['--port', String(layout.temporalPort)],
      ['--ui-port', String(layout.temporalUiPort)],
      ['--db-filename', join(layout.state, 'temporal.db')],
      ['--namespace', layout.temporalNamespace],
      // No `--ui-codec-endpoint`: with it the UI would send the codec no cookie, whatever its settings say.
      // Measured: two to three times the throughput of the defaults. Normal is safe against kill -9. A power cut may
      // lose the last commits; then the dispatcher starts the pending operations again.
      ['--sqlite-pragma', 'journal_mode=wal'],
      ['--sqlite-pragma', 'synchronous=normal'],
      ...['transfer', 'timer', 'visibility', 'outbound'].map((queue) =>
        // With the default of 20 polls a second each step waits up to 50 ms: a small workflow takes 150 ms instead of
        // 33.
        ['--dynamic-config-value', `history.${queue}ProcessorMaxPollRPS=200`],
      ),
      // One process needs no partitions.
      ['--dynamic-config-value', 'matching.numTaskqueueReadPartitions=1'],
      ['--dynamic-config-value', 'matching.numTaskqueueWritePartitions=1'],
      // Tenants take turns in each task queue.
      ['--dynamic-config-value', 'matching.useNewMatcher=true'],
      ['--dynamic-config-value', 'matching.enableFairness=true'],
      ['--dynamic-config-value', 'system.forceSearchAttributesCacheRefreshOnRead=true'],
    ].flat(),
    env: baseEnv(layout),
    ready: async ({ signal }) => {
      const ask = ['operator', 'cluster', 'health', '--address', `127.0.0.1:${layout.temporalPort}`]
      await until(signal, () => run(program, ask, { signal, env: baseEnv(layout) }))
    },
    graceMs: 15_000,
  }
}

/** The Docker Engine for a machine that has none. */
export function dockerRole(layout: Layout, engine: OwnEngine): RoleSpec {
  return {
    name: 'docker',
    command: 'dockerd',
    args: engine.args,
    env: baseEnv(layout),
    prepare: () => prepareEngine(layout),
    ready: ({ signal }) =>
      until(signal, async () => {
        if (!(await engineAnswers(`unix://${engine.socket}`))) throw new Error('the engine does not answer')
      }),
    graceMs: 30_000,
  }
}

/** An API process, ready when its log says so. `index` counts from 0. */
export function apiRole(layout: Layout, connections: Connections, index: number): RoleSpec {
  const port = nthApiPort(layout.apiPort, index)
  return {
    ...nodeRole(layout, numbered('api', index), 'api/main.ts'),
    env: roleEnv(layout, 'api', connections, {
      KEELSON_API_PORT: String(port),
      ...metricsSetting(layout, 'api', index),
    }),
    ready: saysReady, // over HTTP or HTTPS, as configured
    graceMs: 15_000,
  }
}

export function workerRole(layout: Layout, connections: Connections, index: number): RoleSpec {
  return {
    ...nodeRole(layout, numbered('worker', index), 'worker/platform.ts', [
      '--import',
      join(layout.repository, 'worker/workflow-threads.ts'),
    ]),
    env: roleEnv(layout, 'worker', connections, metricsSetting(layout, 'worker', index)),
    ready: saysReady,
    graceMs: 15_000,
  }
}

export function gatewayRole(layout: Layout, connections: Connections): RoleSpec {
  return {
    ...nodeRole(layout, 'gateway', 'gateway/main.ts'),
    env: roleEnv(layout, 'gateway', connections, metricsSetting(layout, 'gateway', 0)),
    ready: saysReady,
    graceMs: 15_000,
  }
}

export function modelGatewayRole(layout: Layout, connections: Connections): RoleSpec {
  return {
    ...nodeRole(layout, 'model-gateway', 'gateway/models/main.ts'),
    env: roleEnv(layout, 'model-gateway', connections, metricsSetting(layout, 'model-gateway', 0)),
    ready: saysReady,
    graceMs: 15_000,
  }
}

/** `token` is for the host's first enrolment; `underlay` is its address between hosts. */
export function hostRole(
  layout: Layout,
  connections: Connections,
  token: string | null,
  underlay: string | null,
): RoleSpec {
  const more = {
    ...(token ? { KEELSON_HOST_TOKEN: token } : {}),
    ...(underlay ? { KEELSON_UNDERLAY_ADDRESS: underlay } : {}),
  }
  return {
    ...nodeRole(layout, 'host', 'worker/host.ts'),
    env: roleEnv(layout, 'host', connections, { ...metricsSetting(layout, 'host', 0), ...more }),
    ready: saysReady,
    graceMs: 15_000,
  }
}

const metricsOffset = { api: 5, worker: 6, host: 7, gateway: 9, 'model-gateway': 13 }

/** The metrics port of a role's n-th process; `index` counts from 0. */
export const metricsPort = (layout: Layout, role: keyof typeof metricsOffset, index: number): number =>
  nthApiPort(layout.apiPort, index) + metricsOffset[role]

export const metricsSetting = (layout: Layout, role: keyof typeof metricsOffset, index: number) => ({
  KEELSON_METRICS_PORT: String(metricsPort(layout, role, index)),
})

/** The data plane's port is next to the first API's. */
export const nthApiPort = (first: number, index: number): number => first + 10 * index

export const numbered = (role: string, index: number): string => (index === 0 ? role : `${role}-${index + 1}`)

export const nodeRole = (layout: Layout, name: string, entry: string, options: string[] = []) => ({
  name,
  command: process.execPath,
  args: [
    '--import',
    join(layout.repository, 'script/lib/keep-compiled.ts'),
    ...options,
    join(layout.repository, entry),
  ],
})

export const saysReady: RoleSpec['ready'] = ({ pid, log, signal }) =>
  log.entry((entry) => entry.msg === 'ready' && entry.pid === pid, signal)

/** Retries every 50 ms until `attempt` does not throw. */
export async function until(signal: AbortSignal, attempt: () => Promise<unknown>): Promise<void> {
  for (;;) {
    signal.throwIfAborted()
    try {
      await attempt()
      return
    } catch {
      await sleep(50, undefined, { signal })
    }
  }
}
