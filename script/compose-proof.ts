// Proves docker-compose.yml by the commands of docs/compose.md, as printed there: builds the platform's image, starts all
// services with three workers, does the platform's main job through the API, and removes everything. Without an image registry,
// stand-ins (script/standins) replace the public images. Run it by `node script/compose-proof.ts`; it takes minutes. An
// interrupted proof removes everything too, and the next one what a killed one has left.
import { execFile } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs, promisify } from 'node:util'
import { removeContainerNetworks } from '../drivers/docker/network.ts'
import { removeFence } from '../drivers/linux/fences.ts'
import { blocksOf, pageOf } from './lib/pages.ts'
import { unmountUnder } from './lib/destroy.ts'
import { existingEngine, ownEngine, removeBridge } from './lib/engine.ts'
import { endRecorded, recordedNames } from './lib/processes.ts'
import { Role } from './lib/role.ts'
import { dockerRole } from './lib/roles.ts'
import { ownerFile, writePrivate } from './lib/secrets.ts'
import { readLayout } from './lib/settings.ts'

const { state: serverState, repository, tools } = readLayout()
// A separate state folder, so that it shares no engine with a server. `--port-base` as for script/server.
const portBase = parseArgs({ options: { 'port-base': { type: 'string', default: '28000' } } }).values[
  'port-base'
]
const layout = { ...readLayout({ state: join(serverState, 'compose'), portBase }), tools }

const interruption = new AbortController()
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(name, () => interruption.abort(new Error(`interrupted by ${name}`)))
let mayInterrupt = true
const start = promisify(execFile)

/** Runs a program in the clone and returns its stdout; its stderr goes to the terminal. */
async function run(command: string, ...args: string[]): Promise<string> {
  const signal = mayInterrupt ? interruption.signal : undefined
  const running = start(command, args, { cwd: repository, maxBuffer: 2 ** 26, signal })
  running.child.stderr?.pipe(process.stderr)
  return (await running).stdout
}
const docker = (...args: string[]): Promise<string> => run('docker', ...args)
const compose = (...args: string[]): Promise<string> => docker('compose', ...args)
/** Runs a block of the page, of which no command may fail. */
async function paste(block: string): Promise<string> {
  for (const line of lines(block)) console.log(`$ ${line}`)
  // Bash takes a socket as its input for a remote login, and would read the user's settings.
  return run('bash', '--norc', '-euo', 'pipefail', '-c', block)
}
const lines = (output: string): string[] => output.split('\n').filter(Boolean)
const say = (words: string) => console.log(`compose: ${words}`)

/** The machine's engine, or one of the proof's own, which is returned. */
async function startEngine(): Promise<Role | undefined> {
  const existing = await existingEngine(layout)
  if (existing) {
    process.env['DOCKER_HOST'] = existing
    return undefined
  }
  const log = join(layout.state, 'log')
  mkdirSync(log, { recursive: true })
  mkdirSync(layout.run, { recursive: true, mode: 0o700 })
  // A proof that was killed left its engine running.
  for (const name of recordedNames(layout.run)) await endRecorded(layout.run, name, 15_000)
  const own = await ownEngine(layout)
  const role = new Role(dockerRole(layout, own), { run: layout.run, cwd: repository, log })
  await role.start()
  process.env['DOCKER_HOST'] = `unix://${own.socket}`
  return role
}

/** Lets docker-compose.yml use the public images, or the stand-ins if there is no registry. */
async function chooseImages(): Promise<void> {
  try {
    await docker('pull', '--quiet', 'mongo:8.0')
    say('the public images')
  } catch {
    interruption.signal.throwIfAborted()
    say('no registry answers: stand-ins for the public images')
    for (const setting of lines(await run('script/standins'))) {
      const [name = '', value = ''] = setting.split('=')
      process.env[name] = value
    }
  }
}

/** The engine's bridge: an address of this machine that the API's container and clients here reach. */
const gateway = async (): Promise<string> =>
  (await docker('network', 'inspect', 'bridge', '--format', '{{(index .IPAM.Config 0).Gateway}}')).trim()

/** The settings of the page, for a machine where other platforms run. */
async function configure(): Promise<void> {
  Object.assign(process.env, {
    COMPOSE_PROJECT_NAME: 'keelson-proof',
    KEELSON_API_PORT: String(layout.apiPort),
    KEELSON_API_URL: layout.apiUrl,
    KEELSON_HOST_ADDRESS: await gateway(),
    KEELSON_HOST_PORT: String(layout.hostPort),
    KEELSON_HOST_PORT_RANGE: layout.hostPortRange,
    KEELSON_GATEWAY_PORT: String(layout.gatewayPort),
    KEELSON_MODELS_PORT: String(layout.modelsPort),
    TEMPORAL_UI_PORT: String(layout.temporalUiPort),
    KEELSON_TEMPORAL_UI_URL: layout.temporalUiUrl,
    DOCKER_SOCKET: String(process.env['DOCKER_HOST']).replace('unix://', ''),
    DOCKER_ROOT: (await docker('info', '--format', '{{.DockerRootDir}}')).trim(),
  })
  try {
    await docker('buildx', 'version')
  } catch {
    process.env['DOCKER_BUILDKIT'] = '0' // the builder without a plugin
  }
}

/** The main job, as a client, with the password from setup's log. */
async function useIt(logged: string): Promise<void> {
  const first = /\{.*"password".*\}/.exec(logged)?.[0] ?? ''
  const { email, password } = JSON.parse(first) as { email: string; password: string }
  writePrivate(ownerFile(layout), JSON.stringify({ email, password }))
  console.log(await run(process.execPath, 'script/demo.ts', layout.state, layout.apiUrl))
}

async function tellWhy(): Promise<void> {
  console.log(await compose('logs', '--tail', '30', 'setup', 'api', 'worker', 'host'))
  for (const id of lines(await compose('ps', '--quiet')))
    console.log(await docker('inspect', id, '--format', '{{.Name}} {{json .State.Health}}'))
}

/** Null if it has not enrolled. */
async function hostId(): Promise<string | null> {
  const [host] = lines(await compose('ps', '--all', '--quiet', 'host'))
  const credential = host && (await docker('cp', `${host}:/state/host.json`, '-').catch(() => ''))
  return /"host_id":\s*"([^"]+)"/.exec(credential ?? '')?.[1] ?? null
}

/** Removes the services, and what their host has made on this machine. */
async function down(): Promise<void> {
  const host = await hostId()
  if (host !== null) {
    const tenants = lines(await docker('ps', '--all', '--quiet', '--filter', `label=keelson.host=${host}`))
    // The host would make them again.
    await compose('stop', 'host')
    if (tenants.length > 0) await docker('rm', '--force', ...tenants)
    await removeContainerNetworks(String(process.env['DOCKER_HOST']), host)
    await removeFence({ host, namespace: null })
  }
  await compose('down', '--volumes')
}

/** After the page's last commands, nothing is left of the services and of what their host has made. */
async function needNothing(host: string | null): Promise<void> {
  if (host === null) throw new Error('the host has not enrolled')
  const its = ['--quiet', '--filter', `label=keelson.host=${host}`]
  const project = ['--quiet', '--filter', 'label=com.docker.compose.project=keelson-proof']
  const left = [
    await docker('ps', '--all', ...its),
    await docker('network', 'ls', ...its),
    await docker('ps', '--all', ...project),
    await docker('volume', 'ls', ...project),
  ]
  if (left.some(Boolean)) throw new Error(`containers, networks or volumes are left: ${left.join(' ')}`)
  await removeFence({ host, namespace: null })
}

async function removeEngine(): Promise<void> {
  if (!engine) return
  await engine.stop()
  await removeBridge(layout)
  await unmountUnder([layout.run, layout.state])
}

const engine = await startEngine()
try {
  await chooseImages()
  await configure()
  await down() // what a proof that was killed left
  const [up = '', images = '', away = ''] = blocksOf(await pageOf('compose'))
  const logged = await paste(up)
  const bytes = Number(await docker('image', 'inspect', 'keelson/platform:local', '--format', '{{.Size}}'))
  say(`all services are up; the platform's image has ${Math.round(bytes / 2 ** 20)} MiB`)
  console.log(await compose('ps', '--format', 'table {{.Service}}\t{{.Status}}'))
  await paste(images)
  await useIt(logged)
  const host = await hostId()
  await paste(away)
  await needNothing(host)
  say('passed')
} catch (error) {
  if (!interruption.signal.aborted) await tellWhy()
  throw error
} finally {
  mayInterrupt = false
  try {
    await down()
  } finally {
    await removeEngine()
  }
}
