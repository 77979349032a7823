import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { cp, mkdir, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import Docker from 'dockerode'
import mongoose from 'mongoose'
import { stateFolder } from '../../config.ts'
import { askControl } from '../../script/lib/control.ts'
import { readLayout, shortHash } from '../../script/lib/settings.ts'
import type { ServerFacts } from '../../script/lib/supervisor.ts'
import { isLong } from './long.ts'
import { removeScratch, serversIn } from './scratch.ts'

// One real stack for all end-to-end tests: `script/server` with its own state folder and ports.

process.env['KEELSON_TOOLS'] ??= resolve(stateFolder(), 'tools')
export const layout = readLayout({
  state: process.env['KEELSON_TEST_STATE'] ?? resolve(stateFolder(), 'test'),
  portBase: process.env['KEELSON_TEST_PORT_BASE'] ?? '25000',
})

/** Several runs of jest share the stack (script/test), or a developer keeps it (`script/test --keep`). */
export const keepsStack = process.env['KEELSON_TEST_KEEP'] === '1'

/** The tests' temporary folder. Its path is short, because sockets are made below it. */
const scratch = `/tmp/kl-${shortHash(layout.state)}`

/** The addresses and process facts of the running stack. */
export const facts = (): ServerFacts =>
  JSON.parse(readFileSync(join(layout.state, 'server.json'), 'utf8')) as ServerFacts

/** The settings of the platform's own programs, for tests that look past the API. */
export const stackSettings = () => ({
  KEELSON_MONGODB_URL: readFileSync(join(layout.state, 'mongodb.url'), 'utf8').trim(),
  KEELSON_MASTER_KEY_FILE: join(layout.state, 'master.key'),
  KEELSON_CODEC_KEY_FILE: join(layout.state, 'codec.key'),
  KEELSON_TEMPORAL_ADDRESS: facts().temporal_address,
  KEELSON_TEMPORAL_NAMESPACE: facts().temporal_namespace,
})

export function dockerOf(dockerHost: string): Docker {
  const { protocol, pathname, hostname, port } = new URL(dockerHost)
  if (protocol === 'unix:') return new Docker({ socketPath: pathname, host: undefined })
  return new Docker({ host: hostname, port, protocol: 'http' })
}

/** A port that the stack's hosts publish. They take their own at random, so count from the end of the range. */
export const publishedPort = (fromEnd: number): number => Number(layout.hostPortRange.split('-')[1]) - fromEnd

/** The topic that reports on mail. Its host is a server that the tests start (test/support/topic.ts). */
export const mailTopic = {
  arn: 'arn:aws:sns:eu-west-1:123456789012:mail-events',
  port: layout.apiPort + 71,
  caFile: join(layout.state, 'mail-topic-ca.pem'),
}

/** The ACME server that the tests start (test/support/pebble.ts). */
export const acmeServer = {
  port: layout.apiPort + 67,
  managementPort: layout.apiPort + 68,
  dnsPort: layout.apiPort + 69,
  dnsManagementPort: layout.apiPort + 70,
  caFile: join(layout.state, 'acme-ca.pem'),
}

/** The receiver of webhooks that the tests start (test/support/receiver.ts). */
export const eventReceiver = { port: layout.apiPort + 72 }

/** The receiver of webhooks and the server with a bucket of test/docs, which other tests may run beside. */
export const docsServers = { receiver: layout.apiPort + 119, s3: layout.apiPort + 120 }

/** The server with a bucket for the platform's own store (test/compute/log-stores.test.ts). */
export const platformS3 = { port: layout.apiPort + 66 }

/** The server on a disk of its own, which takes the 14 ports from there on (test/server/full-disk.test.ts). */
export const fullDiskServer = { port: layout.apiPort + 105 }

/** The server with buckets of tenants that the tests start (test/support/s3-server.ts). */
export const tenantS3 = { port: layout.apiPort + 73 }

/** The registry with a login that the tests start (test/support/private-registry.ts). */
export const privateRegistry = { port: layout.apiPort + 99 }

/** The servers of tools that the tests start (test/support/mcp-servers.ts), and a port where none is. */
export const toolServers = {
  http: layout.apiPort + 80,
  sse: layout.apiPort + 81,
  fake: layout.apiPort + 82,
  none: layout.apiPort + 83,
  /** Those of runs. */
  runs: layout.apiPort + 87,
  counted: layout.apiPort + 88,
  redacted: layout.apiPort + 97,
}

/** The providers of connectors that the tests start (test/support/providers/). */
export const providerPorts = {
  gitlab: layout.apiPort + 74,
  github: layout.apiPort + 75,
  models: layout.apiPort + 76,
  /** The same for the tests of AI workflows, which run beside those of connectors. */
  workflows: layout.apiPort + 78,
}
/** The providers of models that the tests start (test/support/model-provider/), for the stack's own gateway. */
export const modelProviderPorts = {
  embeddings: layout.apiPort + 77,
  rankings: layout.apiPort + 79,
  runs: layout.apiPort + 84,
  usage: layout.apiPort + 95,
  maps: layout.apiPort + 98,
  tools: layout.apiPort + 89,
  evals: layout.apiPort + 85,
  streams: layout.apiPort + 94,
  examples: layout.apiPort + 93,
  redacted: layout.apiPort + 96,
}
const at = (port: number): string => `http://127.0.0.1:${port}`

/** The platform's client at the Git hosts. */
export const providerClient = { client_id: 'keelson', client_secret: 'planted-secret-of-the-client' }

/** What an operator would set about them. */
export const providerSettings = {
  KEELSON_GITLAB_URL: at(providerPorts.gitlab),
  KEELSON_GITLAB_CLIENT_ID: providerClient.client_id,
  KEELSON_GITLAB_CLIENT_SECRET: providerClient.client_secret,
  KEELSON_GITHUB_URL: at(providerPorts.github),
  KEELSON_GITHUB_API_URL: at(providerPorts.github),
  KEELSON_GITHUB_CLIENT_ID: providerClient.client_id,
  KEELSON_GITHUB_CLIENT_SECRET: providerClient.client_secret,
  KEELSON_ANTHROPIC_URL: `${at(providerPorts.models)}/anthropic`,
  KEELSON_OPENAI_URL: `${at(providerPorts.models)}/openai`,
  KEELSON_GOOGLE_URL: `${at(providerPorts.models)}/google`,
  KEELSON_MISTRAL_URL: `${at(providerPorts.models)}/mistral`,
  KEELSON_GROQ_URL: `${at(providerPorts.models)}/groq`,
  KEELSON_XAI_URL: `${at(providerPorts.models)}/xai`,
  KEELSON_DEEPSEEK_URL: `${at(providerPorts.models)}/deepseek`,
  KEELSON_OPENROUTER_URL: `${at(providerPorts.models)}/openrouter`,
}

/** The private targets that the stack's operator allows. */
export const outboundAllowed = [
  `127.0.0.1:${eventReceiver.port}`,
  `localhost:${eventReceiver.port}`,
  `127.0.0.1:${tenantS3.port}`,
  ...Object.values(docsServers).map((port) => `127.0.0.1:${port}`),
  ...Object.values(toolServers).map((port) => `127.0.0.1:${port}`),
  ...Object.values(providerPorts).map((port) => `127.0.0.1:${port}`),
  ...Object.values(modelProviderPorts).map((port) => `127.0.0.1:${port}`),
]

/** More resources than any test needs, whatever the machine has. */
const settings = {
  KEELSON_MAIL_TOPIC_ARN: mailTopic.arn,
  KEELSON_MAIL_TOPIC_HOST: `localhost:${mailTopic.port}`,
  KEELSON_MAIL_TOPIC_CA_FILE: mailTopic.caFile,
  KEELSON_ACME_DIRECTORY: `https://localhost:${acmeServer.port}/dir`,
  KEELSON_ACME_CA: acmeServer.caFile,
  KEELSON_OUTBOUND_ALLOWED: outboundAllowed.join(','),
  ...providerSettings,
  KEELSON_TOOLS_IMAGE: 'keelson/test-mcp:1', // test/support/mcp-image.ts
  KEELSON_CONNECTOR_CHECK_SEC: '86400', // tests say when to look
  // Where no registry is, and where tests start one.
  KEELSON_IMAGES_PRIVATE: `localhost:1,127.0.0.1:${privateRegistry.port}`,
  KEELSON_RESERVED_PORTS: `${layout.apiPort + 690}-${layout.apiPort + 899}`, // the tests of drivers use these
  KEELSON_HOST_CPU_CORES: '256',
  KEELSON_HOST_MEMORY_MIB: String(256 * 1024),
  KEELSON_RATE_PER_SEC: '100000',
  // What stands in for public images (test/support/base-images.ts).
  KEELSON_BUILD_NODE_IMAGE: 'keelson/test-node:24',
  KEELSON_BUILD_PYTHON_IMAGE: 'keelson/test-python:3',
  KEELSON_BUILD_GO_IMAGE: 'keelson/test-go:1',
  KEELSON_BUILD_RUN_IMAGE: 'busybox:latest',
  KEELSON_BUILD_COMPOSER_IMAGE: 'keelson/test-php:8',
  KEELSON_BUILD_PHP_IMAGE: 'keelson/test-php:8',
  KEELSON_BUILD_STATIC_IMAGE: 'keelson/test-caddy:2',
  // test/support/database-images.ts; the images of the other engines cannot be had.
  KEELSON_DATABASE_POSTGRESQL_IMAGE: 'keelson/test-postgresql',
  KEELSON_DATABASE_MARIADB_IMAGE: 'keelson/test-mariadb',
  KEELSON_DATABASE_REDIS_IMAGE: 'keelson/test-redis',
  KEELSON_DATABASE_MONGODB_IMAGE: 'keelson/test-mongodb',
  KEELSON_DATABASE_CLICKHOUSE_IMAGE: 'keelson/test-clickhouse',
  // The default is containers; the tests of VMs, which take minutes, are of the long form.
  KEELSON_HOST_VM_MACHINES: isLong ? 'always' : 'never',
  KEELSON_ARCHIVE_EVERY_SEC: '2',
  // Small, so that a test can overflow it in a moment; the long form uses the default.
  KEELSON_LOG_BACKLOG_MIB: isLong ? '512' : '96',
}

/** Without the developer's settings, which are for another stack; only the engine and the tools are shared. */
function environment(): NodeJS.ProcessEnv {
  const shared = ['KEELSON_TOOLS', 'KEELSON_DOCKER_HOST']
  const own = Object.entries(process.env).filter(
    ([name]) => (!name.startsWith('KEELSON_') || shared.includes(name)) && name !== 'TMPDIR',
  )
  return { ...Object.fromEntries(own), ...settings }
}

/**
 * Resolves when every role is ready. There are two API processes, because a change through one must hold on the other.
 * The further hosts are closed; the tests of several hosts open them (test/support/hosts.ts). A machine without network
 * namespaces has one host, and skips those tests.
 */
export async function startStack(): Promise<void> {
  await startServer((await makesNamespaces()) ? 3 : 1)
  const client = await new mongoose.mongo.MongoClient(stackSettings().KEELSON_MONGODB_URL).connect()
  await client
    .db()
    .collection('hosts')
    .updateMany({ name: /-\d$/ }, { $set: { cordoned: true } })
  await client.close()
}

/** Only root may make network namespaces, and not in every container. */
async function makesNamespaces(): Promise<boolean> {
  const name = `kl-probe-${process.pid}`
  try {
    await run('ip', ['netns', 'add', name])
    await run('ip', ['netns', 'delete', name])
    return true
  } catch {
    return false
  }
}

const startServer = (hosts: number): Promise<void> =>
  server(layout.state, '--detach', '--port-base', `${layout.apiPort}`, '--apis', '2', '--hosts', `${hosts}`)

/** Sets the tests' temporary folder, for this process and its children. */
export async function useScratch(): Promise<void> {
  await mkdir(scratch, { recursive: true, mode: 0o755 }) // readable by others: dnsmasq drops root
  process.env['TMPDIR'] = scratch
}

/**
 * Removes everything that the stack and its tests made on this machine, also after an interruption. The stack's logs
 * stay beside its folder. A missing stack is success.
 */
export async function removeStack(): Promise<void> {
  try {
    for (const state of await serversIn(scratch)) await server(state, 'destroy', '--yes')
    await removeScratch(scratch)
    // A stack that never got ready has run nothing.
    if (existsSync(join(layout.state, 'server.json')) && (await isRunning())) await removeContainers()
  } finally {
    await removeServer() // whatever could not be removed before
  }
}

async function removeServer(): Promise<void> {
  if (!existsSync(layout.state)) return
  await rm(keptLogs, { recursive: true, force: true })
  // The stack may never have run.
  await cp(join(layout.state, 'log'), keptLogs, { recursive: true, force: true }).catch(() => {})
  await server(layout.state, 'destroy', '--yes')
  await rm(layout.state, { recursive: true, force: true })
}

export const isRunning = (): Promise<boolean> =>
  askControl(layout, 'GET', '/roles').then(
    () => true,
    () => false,
  )

const run = promisify(execFile)
const keptLogs = `${layout.state}.log`

async function server(state: string, ...args: string[]): Promise<void> {
  const child = spawn(join(layout.repository, 'script/server'), [...args, '--state', state], {
    env: environment(),
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  if (code !== 0) throw new Error(`script/server ${args[0]} failed; see ${state}/log`)
}

/** Removes them from the machine's own engine, by tenant, because other containers may run there. */
async function removeContainers(): Promise<void> {
  // First stop the roles that would recreate them.
  for (const role of ['host', 'worker', 'api']) await askControl(layout, 'POST', `/roles/${role}/kill`)
  await askControl(layout, 'POST', '/roles/mongodb/start')
  const client = await new mongoose.mongo.MongoClient(stackSettings().KEELSON_MONGODB_URL).connect()
  const tenants = await client.db().collection<{ _id: string }>('tenants').distinct('_id')
  await client.close()
  const docker = dockerOf(facts().docker_host)
  const all = await docker.listContainers({ all: true, filters: { label: ['keelson.tenant'] } })
  const theirs = all.filter(({ Labels }) => tenants.includes(Labels['keelson.tenant'] ?? ''))
  await Promise.all(theirs.map(({ Id }) => docker.getContainer(Id).remove({ force: true, v: true })))
}
