// Proves docker-compose.yml: builds the platform's image, starts all services with three workers, does the platform's
// main job through the API, and removes everything. Without an image registry, stand-ins (script/standins) replace the
// public images. Run it by `script/test compose`; it takes minutes.
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { existingEngine, ownEngine, removeBridge } from './lib/engine.ts'
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

/** Runs a program in the clone and returns its stdout; its stderr goes to the terminal. */
const run = (command: string, ...args: string[]): string =>
  execFileSync(command, args, {
    cwd: repository,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: 2 ** 26,
  })
const docker = (...args: string[]): string => run('docker', ...args)
const compose = (...args: string[]): string => docker('compose', '--project-name', 'keelson-proof', ...args)
const say = (words: string) => console.log(`compose: ${words}`)

async function startEngine(): Promise<Role | undefined> {
  const existing = await existingEngine(layout)
  if (existing) {
    process.env['DOCKER_HOST'] = existing
    return undefined
  }
  const log = join(layout.state, 'log')
  mkdirSync(log, { recursive: true })
  mkdirSync(layout.run, { recursive: true, mode: 0o700 })
  const own = await ownEngine(layout)
  const role = new Role(dockerRole(layout, own), { run: layout.run, cwd: repository, log })
  await role.start()
  process.env['DOCKER_HOST'] = `unix://${own.socket}`
  return role
}

/** Lets docker-compose.yml use the public images, or the stand-ins if there is no registry. */
function chooseImages(): void {
  try {
    docker('pull', '--quiet', 'mongo:6.0')
    say('the public images')
  } catch {
    say('no registry answers: stand-ins for the public images')
    for (const setting of run('script/standins').trim().split('\n')) {
      const [name = '', value = ''] = setting.split('=')
      process.env[name] = value
    }
  }
}

function buildPlatform(): void {
  try {
    docker('buildx', 'version')
  } catch {
    process.env['DOCKER_BUILDKIT'] = '0' // the builder without a plugin
  }
  const node = process.env['NODE_IMAGE'] ?? 'node:24-slim'
  const args = ['--network', 'host', '--build-arg', `NODE_IMAGE=${node}`, '--tag', 'keelson/platform:local']
  docker('build', ...args, '--file', 'images/platform/Dockerfile', '.')
}

/** The engine's bridge: an address of this machine that the API's container and clients here reach. */
const gateway = (): string =>
  docker('network', 'inspect', 'bridge', '--format', '{{(index .IPAM.Config 0).Gateway}}').trim()

function up(): void {
  Object.assign(process.env, {
    KEELSON_API_PORT: String(layout.apiPort),
    KEELSON_API_URL: layout.apiUrl,
    KEELSON_HOST_ADDRESS: gateway(),
    KEELSON_HOST_PORT: String(layout.hostPort),
    KEELSON_HOST_PORT_RANGE: layout.hostPortRange,
    KEELSON_GATEWAY_PORT: String(layout.gatewayPort),
    KEELSON_MODELS_PORT: String(layout.modelsPort),
    TEMPORAL_UI_PORT: String(layout.temporalUiPort),
    KEELSON_TEMPORAL_UI_URL: layout.temporalUiUrl,
    DOCKER_SOCKET: String(process.env['DOCKER_HOST']).replace('unix://', ''),
    DOCKER_ROOT: docker('info', '--format', '{{.DockerRootDir}}').trim(),
  })
  compose('up', '--detach', '--wait', '--scale', 'worker=3')
}

/** The main job, as a client, with the password from setup's log. */
function useIt(): void {
  run('script/images')
  const [first = ''] = docker('logs', compose('ps', '--all', '--quiet', 'setup').trim()).split('\n')
  const { email, password } = JSON.parse(first) as { email: string; password: string }
  writePrivate(ownerFile(layout), JSON.stringify({ email, password }))
  console.log(run(process.execPath, 'script/demo.ts', layout.state, layout.apiUrl))
}

function down(): void {
  const tenants = docker('ps', '--all', '--quiet', '--filter', 'label=keelson.resource')
    .split('\n')
    .filter(Boolean)
  if (tenants.length > 0) docker('rm', '--force', ...tenants)
  compose('down', '--volumes')
}

const engine = await startEngine()
try {
  chooseImages()
  buildPlatform()
  const bytes = Number(docker('image', 'inspect', 'keelson/platform:local', '--format', '{{.Size}}'))
  say(`the platform image is built, ${Math.round(bytes / 2 ** 20)} MiB`)
  try {
    up()
    say('all services are up')
    console.log(compose('ps', '--format', 'table {{.Service}}\t{{.Status}}'))
    useIt()
  } catch (error) {
    console.log(compose('logs', '--tail', '30', 'setup', 'api', 'worker', 'host'))
    for (const id of compose('ps', '--quiet').split('\n').filter(Boolean))
      console.log(docker('inspect', id, '--format', '{{.Name}} {{json .State.Health}}'))
    throw error
  } finally {
    down()
  }
  say('passed')
} finally {
  await engine?.stop()
  if (engine) await removeBridge(layout)
}
