import { createHash } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { unless } from '../docker/errors.ts'
import type { ComposedOptions, SwarmServiceSpec } from '../swarms.ts'
import { literal } from './templates.ts'

// The networks and files of services in a Swarm. Files are the Swarm's configs, named by their content.

const label = 'keelson.composed'
const mebibyte = 1024 ** 2
const nanos = 1e9
/** What has just ended may still hold a network for this time. */
const triesToRemove = 10
const triesEveryMs = 300

interface Named {
  ID: string
  Spec: { Name: string }
}
interface Network {
  Id: string
  Name: string
}

/** The part of the engine's API that is used here. */
export interface SurroundingsApi {
  listNetworks(options: object): Promise<Network[]>
  createNetwork(options: object): Promise<unknown>
  getNetwork(id: string): { remove(): Promise<unknown> }
  listConfigs(options: object): Promise<Named[]>
  createConfig(options: object): Promise<unknown>
  getConfig(id: string): { remove(): Promise<unknown> }
}

const fileName = ({ content }: { content: string }): string =>
  `keelson-${createHash('sha256').update(content).digest('hex').slice(0, 40)}`

const networksOf = (services: SwarmServiceSpec[]) =>
  new Map(services.flatMap(({ composed }) => composed?.networks ?? []).map((one) => [one.name, one]))
const filesOf = (services: SwarmServiceSpec[]) =>
  new Map(services.flatMap(({ composed }) => composed?.files ?? []).map((one) => [fileName(one), one]))

const ours = { filters: { label: [label] } }
const networksThere = async (engine: SurroundingsApi) =>
  new Map((await engine.listNetworks(ours)).map(({ Id, Name }) => [Name, Id]))
const filesThere = async (engine: SurroundingsApi) =>
  new Map((await engine.listConfigs(ours)).map(({ ID, Spec }) => [Spec.Name, ID]))

/** Makes the networks and files that are missing. Returns the Swarm's ids of the files, by their names. */
export async function makeSurroundings(
  engine: SurroundingsApi,
  services: SwarmServiceSpec[],
): Promise<ReadonlyMap<string, string>> {
  const networks = networksOf(services)
  if (networks.size) {
    const there = await networksThere(engine)
    for (const { name, internal } of networks.values())
      if (!there.has(name)) {
        const options = { Name: name, Driver: 'overlay', Internal: internal, CheckDuplicate: true }
        await unless([409], engine.createNetwork({ ...options, Labels: { [label]: '1' } }))
      }
  }
  const files = filesOf(services)
  if (files.size === 0) return new Map()
  const there = await filesThere(engine)
  for (const [Name, { content }] of files)
    if (!there.has(Name)) {
      const Data = Buffer.from(content).toString('base64')
      await unless([409], engine.createConfig({ Name, Labels: { [label]: '1' }, Data }))
    }
  return filesThere(engine)
}

/** Removes the networks and files that no service needs. One that cannot be removed yet waits for the next call. */
export async function tidySurroundings(engine: SurroundingsApi, services: SwarmServiceSpec[]): Promise<void> {
  const networks = networksOf(services)
  for (const [name, id] of await networksThere(engine))
    if (!networks.has(name)) await removed(() => engine.getNetwork(id).remove())
  const files = filesOf(services)
  for (const [name, id] of await filesThere(engine))
    if (!files.has(name)) await removed(() => engine.getConfig(id).remove())
}

async function removed(remove: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; tries <= triesToRemove; tries++) {
    try {
      await remove()
      return
    } catch {
      await delay(triesEveryMs) // in use until its last task has ended
    }
  }
}

interface Body {
  TaskTemplate: { ContainerSpec: { Mounts: { Target: string }[] } & object } & object
  EndpointSpec: object
}

/** The parts of a service's spec that its options decide. `into` completes the spec with the ids of its files. */
export function composedParts(spec: SwarmServiceSpec, options: ComposedOptions) {
  const { health_check: check, restart, files } = options
  const container = {
    ...(options.entrypoint ? { Command: options.entrypoint } : {}),
    ...(options.user ? { User: options.user } : {}),
    ...(options.working_dir ? { Dir: options.working_dir } : {}),
    ...(options.hostname ? { Hostname: literal(options.hostname) } : {}),
    ...(options.stop_signal ? { StopSignal: options.stop_signal } : {}),
    ...(options.read_only ? { ReadOnly: true } : {}),
    ...(options.tty ? { TTY: true } : {}),
    ...(options.capabilities.add.length ? { CapabilityAdd: options.capabilities.add } : {}),
    ...(options.capabilities.drop.length ? { CapabilityDrop: options.capabilities.drop } : {}),
    HealthCheck: healthCheckOf(check),
  }
  const mounts = options.tmpfs.map(({ mount_path, size_mib }) => ({
    Type: 'tmpfs',
    Target: mount_path,
    TmpfsOptions: { SizeBytes: (size_mib ?? spec.memory_mib) * mebibyte },
  }))
  const task = {
    RestartPolicy: {
      Condition: { always: 'any', 'on-failure': 'on-failure', no: 'none' }[restart],
      Delay: 2 * nanos,
    },
    Networks: options.networks.map(({ name, aliases }) => ({ Target: name, Aliases: aliases })),
  }
  const ports = options.ports.map(({ container_port, machine_port }) => ({
    Protocol: 'tcp',
    PublishMode: 'host',
    TargetPort: container_port,
    PublishedPort: machine_port,
  }))
  const configs = files.map((file) => ({
    ConfigName: fileName(file),
    File: { Name: file.mount_path, UID: '0', GID: '0', Mode: file.mode },
  }))

  const into = <Of extends Body>(body: Of, fileIds: ReadonlyMap<string, string>) => {
    const { ContainerSpec, ...rest } = body.TaskTemplate
    const Mounts = ContainerSpec.Mounts.map((mount) =>
      options.read_only_paths.includes(mount.Target) ? { ...mount, ReadOnly: true } : mount,
    )
    const Configs = configs.map((one) => ({ ...one, ConfigID: fileIds.get(one.ConfigName) }))
    return {
      ...body,
      TaskTemplate: {
        ...rest,
        ContainerSpec: { ...ContainerSpec, ...container, Mounts: [...Mounts, ...mounts], Configs },
        ...task,
      },
      EndpointSpec: { ...body.EndpointSpec, ...(ports.length ? { Ports: ports } : {}) },
    }
  }
  return { container, mounts, task, ports, configs, read_only_paths: options.read_only_paths, into }
}

function healthCheckOf(check: ComposedOptions['health_check']) {
  if (check === null) return undefined // the image's own
  if (check === 'none') return { Test: ['NONE'] }
  return {
    Test: ['CMD', ...check.command],
    Interval: Math.round(check.interval_sec * nanos),
    Timeout: Math.round(check.timeout_sec * nanos),
    Retries: check.retries,
    StartPeriod: Math.round(check.start_period_sec * nanos),
  }
}
