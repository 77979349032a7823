import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { type Logger, pino } from 'pino'
import { watchDisk } from '../../lib/disk-room.ts'
import { patientDestination } from '../../lib/log-destination.ts'
import { type Controlled, controlSocket, serveControl, type Verb } from './control.ts'
import { bridgeOf, existingEngine, ownEngine } from './engine.ts'
import {
  copyImages,
  furtherEngineRole,
  furtherHostRole,
  makeFurtherHosts,
  planePort,
} from './further-hosts.ts'
import { LogFile, prettyLine } from './logs.ts'
import { checkPorts } from './ports.ts'
import { endRecorded, recordedNames, recordPid, serverName } from './processes.ts'
import { Role, type RoleSpec, type RoleStatus } from './role.ts'
import * as roles from './roles.ts'
import { makeSecrets, ownerFile, writePrivate } from './secrets.ts'
import { type Layout, shortHash } from './settings.ts'

/** The output of script/setup.ts: the first tenant and its owner; the password only if it has just been made. */
interface FirstTenant {
  tenant: string
  email: string
  password: string | null
  host_token: string | null
  further_tokens: Record<string, string | null>
}

/** What a client of a running server needs to know: `server.json`, without secrets. */
export interface ServerFacts {
  pid: number
  state: string
  api_url: string
  docs_url: string
  temporal_address: string
  temporal_namespace: string
  temporal_ui_url: string
  docker_host: string
  control_socket: string
  /** The number of hosts. */
  hosts: number
  tenant: string
  email: string
}

/** The numbers of api and worker processes, and of hosts; this machine is the first host. */
export interface Counts {
  apis: number
  workers: number
  hosts: number
}

const rotateEveryMs = 60_000

/** A role stops before the roles that it uses. */
const stopOrder = [/^host/, /^worker/, /^(model-)?gateway/, /^api/, /^temporal/, /^mongodb/, /^docker/]

/** Runs every role of the platform on this machine, from start to stop. */
export class Supervisor implements Controlled {
  readonly #layout: Layout
  readonly #counts: Counts
  readonly #logs: string
  readonly #journal: Logger
  readonly #roles: Role[] = []
  readonly #end = Promise.withResolvers<void>()
  #lock: Server | undefined
  #control: Server | undefined
  #stopping: Promise<void> | undefined

  constructor(layout: Layout, counts: Counts) {
    this.#layout = layout
    this.#counts = counts
    this.#logs = join(layout.state, 'log')
    mkdirSync(this.#logs, { recursive: true })
    mkdirSync(layout.run, { recursive: true, mode: 0o700 })
    this.#journal = pino(
      { base: { role: 'server' } },
      patientDestination({ dest: join(this.#logs, 'server.log') }),
    )
    // Of a detached server it is a file, too: what does not fit is in the journal.
    process.stdout.on('error', () => {})
  }

  /**
   * Starts everything and resolves when all is ready, with the owner's password if it has just been made.
   * @throws if a role does not become ready; those that started keep running until `stopAll`.
   */
  async start(): Promise<{ facts: ServerFacts; password: string | null }> {
    const layout = this.#layout
    await this.#takeLock()
    await this.#endLeftovers()
    recordPid(layout.run, serverName, process.pid) // lets `destroy` find it while it starts
    await checkPorts(this.#ports())
    const secrets = makeSecrets(layout.state)
    this.#control = await serveControl(layout, this)
    setInterval(() => this.#roles.forEach((role) => role.log.rotate()), rotateEveryMs).unref()
    watchDisk(layout.state, (words, isFuller) => this.#note(isFuller ? 'warn' : 'info', words))

    const engines: RoleSpec[] = []
    if (!layout.mongodbUrl) engines.push(roles.mongodbRole(layout))
    if (!layout.temporalAddress) engines.push(roles.temporalRole(layout))
    let dockerHost = await existingEngine(layout)
    let bridge: string | null = null
    if (!dockerHost) {
      const own = await ownEngine(layout)
      engines.push(roles.dockerRole(layout, own))
      dockerHost = `unix://${own.socket}`
      bridge = bridgeOf(layout)
    }
    const further = await makeFurtherHosts(layout, this.#counts.hosts)
    engines.push(...further.map((host) => furtherEngineRole(layout, host)))
    await this.#startRoles(engines)

    const connections = {
      mongodbUrl: layout.mongodbUrl ?? roles.ownMongodbUrl(layout, secrets),
      temporalAddress: layout.temporalAddress ?? `127.0.0.1:${layout.temporalPort}`,
      dockerHost,
      bridge,
    }
    writePrivate(join(layout.state, 'mongodb.url'), `${connections.mongodbUrl}\n`)
    await this.#script('images', ['script/images'], { ...process.env, KEELSON_DOCKER_HOST: dockerHost })
    await copyImages(dockerHost, further, [
      'busybox:latest',
      'keelson/hello:1',
      'keelson/machine:1',
      'keelson/rag:1',
      'keelson/runner:1',
      'registry:2',
    ])
    const names = further.map(({ name }) => name).join(',')
    const printed = await this.#script(
      'setup',
      [process.execPath, 'script/setup.ts'],
      roles.roleEnv(layout, 'setup', connections, { KEELSON_FURTHER_HOST_NAMES: names }),
    )
    const first = JSON.parse(printed) as FirstTenant
    const { email, password } = first
    if (password) writePrivate(ownerFile(layout), `${JSON.stringify({ email, password })}\n`)

    await this.#startRoles([
      ...Array.from({ length: this.#counts.apis }, (_, i) => roles.apiRole(layout, connections, i)),
      ...Array.from({ length: this.#counts.workers }, (_, i) => roles.workerRole(layout, connections, i)),
      roles.gatewayRole(layout, connections),
      roles.modelGatewayRole(layout, connections),
      roles.hostRole(layout, connections, first.host_token, further[0]?.machine ?? null),
      ...further.map((host) =>
        furtherHostRole(layout, connections, host, first.further_tokens[host.name] ?? null),
      ),
    ])
    const facts: ServerFacts = {
      pid: process.pid,
      state: layout.state,
      api_url: layout.apiUrl,
      docs_url: `${layout.apiUrl}/docs`,
      temporal_address: connections.temporalAddress,
      temporal_namespace: layout.temporalNamespace,
      temporal_ui_url: layout.temporalUiUrl,
      docker_host: dockerHost,
      control_socket: controlSocket(layout),
      hosts: this.#counts.hosts,
      tenant: first.tenant,
      email,
    }
    writePrivate(join(layout.state, 'server.json'), `${JSON.stringify(facts, null, 2)}\n`)
    return { facts, password }
  }

  roles(): RoleStatus[] {
    return this.#roles.map((role) => role.status)
  }

  async act(name: string, verb: Verb): Promise<RoleStatus> {
    const role = this.#roles.find((each) => each.spec.name === name)
    if (!role)
      throw new Error(`no role ${name}; there are ${this.#roles.map((each) => each.spec.name).join(', ')}`)
    this.#note('info', `${name}: ${verb}, as asked`)
    if (verb === 'kill') await role.kill()
    if (verb === 'stop' || verb === 'restart') await role.stop()
    if (verb === 'start' || verb === 'restart') await role.start()
    return role.status
  }

  /** Resolves when everything has stopped, for whatever reason. */
  get ended(): Promise<void> {
    return this.#end.promise
  }

  /** Stops all roles in order. The tenants' containers keep running. */
  async stopAll(): Promise<void> {
    this.#stopping ??= this.#stopInOrder()
    await this.#stopping
  }

  /** For a second Ctrl-C: kills all roles at once. Nothing acknowledged is lost. */
  async killAll(): Promise<void> {
    await Promise.all(this.#roles.map((role) => role.kill()))
  }

  async #stopInOrder(): Promise<void> {
    for (const names of stopOrder) {
      await Promise.all(this.#roles.filter((role) => names.test(role.spec.name)).map((role) => role.stop()))
    }
    if (this.#roles.length > 0) this.#note('info', 'stopped')
    this.#lock?.close()
    // Ends only after the request for this stop has its answer.
    if (this.#control) this.#control.close(() => this.#end.resolve())
    else this.#end.resolve()
  }

  async #startRoles(specs: RoleSpec[]): Promise<void> {
    const started = specs.map((spec) => {
      if (this.#stopping) throw new Error('stopped while it started')
      const role = new Role(spec, { run: this.#layout.run, cwd: this.#layout.repository, log: this.#logs })
      role.on('note', (level, words) => this.#note(level, words))
      // The engines' output is verbose; it goes to their files only.
      const ofOurs = spec.command === process.execPath
      if (ofOurs && process.stdout.isTTY)
        role.log.on('line', (line) => process.stdout.write(prettyLine(spec.name, line))).follow()
      this.#roles.push(role)
      return role.start()
    })
    await Promise.all(started)
  }

  /** Runs a program to its end and returns its stdout; its stderr goes to `<name>.log`. */
  async #script(
    name: string,
    [command, ...args]: [string, ...string[]],
    env: NodeJS.ProcessEnv,
  ): Promise<string> {
    const log = new LogFile(join(this.#logs, `${name}.log`))
    log.clear() // keep only this run's output
    const child = spawn(command, args, {
      cwd: this.#layout.repository,
      env,
      stdio: ['ignore', 'pipe', log.descriptor],
    })
    const [printed, [code]] = await Promise.all([text(child.stdout as Readable), once(child, 'close')])
    if (code !== 0) throw new Error(`${args[0] ?? command} failed. The end of ${log.path}:\n${log.tail()}`)
    return printed
  }

  /** One server per state folder. The kernel releases this lock however the process ends. */
  async #takeLock(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const lock = createServer()
    lock.once('error', () =>
      reject(new Error(`a server runs on ${this.#layout.state} already: script/server status`)),
    )
    lock.listen(`\0keelson-${shortHash(this.#layout.state)}`, resolve) // an abstract address, without a file
    await promise
    this.#lock = lock
  }

  async #endLeftovers(): Promise<void> {
    const left = recordedNames(this.#layout.run).filter((name) => name !== serverName)
    if (left.length === 0) return
    this.#note('warn', `the last server was killed; ending what it left: ${left.join(', ')}`)
    for (const names of stopOrder) {
      await Promise.all(
        left.filter((name) => names.test(name)).map((name) => endRecorded(this.#layout.run, name, 15_000)),
      )
    }
  }

  /** The ports on which our roles will listen. */
  #ports(): number[] {
    const {
      apiPort,
      hostPort,
      gatewayPort,
      modelsPort,
      mongodbPort,
      mongodbUrl,
      temporalPort,
      temporalUiPort,
      temporalAddress,
    } = this.#layout
    const { apis, workers, hosts } = this.#counts
    const counts = { api: apis, worker: workers, host: hosts, gateway: 1, 'model-gateway': 1 }
    const metricsPorts = Object.entries(counts).flatMap(([role, count]) =>
      Array.from({ length: count }, (_, i) => roles.metricsPort(this.#layout, role as 'api', i)),
    )
    return [
      hostPort,
      gatewayPort,
      modelsPort,
      ...Array.from({ length: this.#counts.hosts - 1 }, (_, i) => planePort(this.#layout, i + 2)),
      ...Array.from({ length: this.#counts.apis }, (_, i) => roles.nthApiPort(apiPort, i)),
      ...metricsPorts,
      ...(mongodbUrl ? [] : [mongodbPort]),
      ...(temporalAddress ? [] : [temporalPort, temporalUiPort]),
    ]
  }

  /** Prints an event for a person, and keeps it in `server.log`. */
  #note(level: 'info' | 'warn', words: string): void {
    this.#journal[level](words)
    process.stdout.write(`${'server'.padEnd(9)} ${words}\n`)
  }
}
