import { isImageReference } from '../../../lib/image-names.ts'
import { capabilityOf, faultsOfCapabilities, faultsOfKeys, type Keys } from './keys.ts'
import { mountsOf } from './mounts.ts'
import { conditions, type Condition, type HealthCheck, type PlannedContainer } from './plan.ts'
import type { Reading, Surroundings } from './reading.ts'
import type { Fault, Path } from './text.ts'
import { mebibytesOf, secondsOf, wordsOf } from './values.ts'

// One container of a compose file. What cannot be carried out as it stands is a fault, never left out.

const known = new Set(
  'cap_add cap_drop command configs container_name cpus depends_on deploy entrypoint environment healthcheck hostname image mem_limit networks ports read_only restart shm_size stdin_open stop_grace_period stop_signal tmpfs tty user volumes working_dir'.split(
    ' ',
  ),
)

const usual = { cpu_cores: 0.5, memory_mib: 256, stop_grace_sec: 10 }
export const longestGraceSec = 120
const longestCheckSec = 86_400
const retriesAtMost = 1000
/** With what the service was before, a Swarm takes no more than 1.5 MiB. */
const textsAtMostKib = 512

/** Reads a container. Adds to `faults` what it cannot take. */
export function containerOf(
  name: string,
  keys: Keys,
  around: Surroundings,
  faults: Fault[],
  at: Path,
): PlannedContainer {
  const fault = (key: string | Path, message: string): void => {
    faults.push({ path: [...at, ...(typeof key === 'string' ? [key] : key)], message })
  }
  faults.push(...faultsOfKeys(keys, known, at))
  const reading: Reading = { name, keys, around, fault }
  const { image } = keys as { image?: string }
  if (!image) fault([], 'has no image')
  else if (!isImageReference(image)) fault('image', 'must be the name of an image')
  const add = (keys['cap_add'] ?? []) as string[]
  faults.push(...faultsOfCapabilities(add, [...at, 'cap_add']))
  if (keys['stdin_open'] === true && keys['tty'] !== true)
    fault('stdin_open', 'is not supported: nothing writes to a container; `tty: true` keeps its input open')
  const planned: PlannedContainer = {
    name,
    aliases: [keys['container_name'] as string | undefined].flatMap((alias) => alias ?? []),
    hostname: textOf(keys['hostname']),
    image: image ?? '',
    entrypoint: commandOf(reading, 'entrypoint'),
    command: commandOf(reading, 'command'),
    env: environmentOf(reading),
    user: textOf(keys['user']),
    working_dir: textOf(keys['working_dir']),
    ports: portsOf(reading),
    networks: networksOf(reading),
    ...mountsOf(reading),
    depends_on: dependenciesOf(reading),
    health_check: healthCheckOf(reading),
    restart: restartOf(reading),
    ...resourcesOf(reading),
    stop_grace_sec: graceOf(reading),
    stop_signal: textOf(keys['stop_signal']),
    read_only: keys['read_only'] === true,
    tty: keys['tty'] === true,
    capabilities: {
      add: add.map(capabilityOf),
      drop: ((keys['cap_drop'] ?? []) as string[]).map(capabilityOf),
    },
  }
  const { env, command, entrypoint, health_check } = planned
  if (Buffer.byteLength(JSON.stringify([env, command, entrypoint, health_check])) > textsAtMostKib * 1024)
    fault([], `has more than ${textsAtMostKib} KiB in its environment and commands`)
  return planned
}

const textOf = (value: unknown): string | null =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : null

function commandOf({ keys, fault }: Reading, key: 'command' | 'entrypoint'): string[] | null {
  const value = keys[key] as string | string[] | null | undefined
  if (value === null || value === undefined) return null
  if (Array.isArray(value)) return value.map(String)
  const words = wordsOf(value)
  if (!words) fault(key, 'has a quote that is not closed')
  return words
}

function environmentOf({ keys, fault }: Reading): Record<string, string> {
  const value = (keys['environment'] ?? {}) as Record<string, string | number | boolean | null> | string[]
  const given = Array.isArray(value) ? value.map(pairOf) : Object.entries(value)
  const env: Record<string, string> = {}
  for (const [index, [name, content]] of given.entries()) {
    if (content === null) fault(['environment', Array.isArray(value) ? index : name], `${name} has no value`)
    else if (!/^[A-Za-z_][\w.-]*$/.test(name))
      fault(['environment', Array.isArray(value) ? index : name], 'is not the name of a variable')
    else env[name] = String(content)
  }
  return env
}

/** `NAME=value` */
const pairOf = (line: string): [string, string | null] => {
  const at = line.indexOf('=')
  return at === -1 ? [line, null] : [line.slice(0, at), line.slice(at + 1)]
}

interface LongPort {
  target?: number | string
  host_ip?: string
  protocol?: string
  mode?: string
}

function portsOf({ keys, fault }: Reading): number[] {
  const given = (keys['ports'] ?? []) as (string | number | LongPort)[]
  const ports = given.flatMap((one, index): number[] => {
    const { target, host_ip, protocol = 'tcp' } = typeof one === 'object' ? one : shortPort(String(one))
    const at: Path = ['ports', index]
    const port = Number(target)
    if (protocol !== 'tcp') fault(at, 'must be a TCP port: the load balancer takes HTTP')
    else if (host_ip) fault(at, 'has an address of the host: the load balancer serves the port')
    else if (!Number.isInteger(port) || port < 1 || port > 65_535) fault(at, 'must be one port')
    else return [port]
    return []
  })
  return [...new Set(ports)]
}

/** `8080:80/tcp` */
function shortPort(text: string): LongPort {
  const [address = '', protocol = 'tcp'] = text.split('/')
  const parts = address.split(':')
  const host_ip = parts.slice(0, -2).join(':')
  return { target: parts.at(-1) ?? '', protocol, ...(host_ip ? { host_ip } : {}) }
}

function networksOf({ keys, around, fault }: Reading): PlannedContainer['networks'] {
  const value = (keys['networks'] ?? ['default']) as string[] | Record<string, Keys | null>
  const given = Array.isArray(value)
    ? value.map((name): [string, Keys | null] => [name, null])
    : Object.entries(value)
  return given.map(([name, options], index) => {
    const at = Array.isArray(value) ? index : name
    if (name !== 'default' && !around.networks.has(name))
      fault(['networks', at], `${name} is not among the networks of this text`)
    for (const key of Object.keys(options ?? {}))
      if (key !== 'aliases') fault(['networks', at, key], 'is not supported')
    return { name, aliases: ((options?.['aliases'] ?? []) as string[]).map(String) }
  })
}

interface LongDependency {
  condition: Condition
  required?: boolean
  restart?: boolean
}

function dependenciesOf({ keys, fault }: Reading): PlannedContainer['depends_on'] {
  const value = (keys['depends_on'] ?? []) as string[] | Record<string, LongDependency>
  if (Array.isArray(value)) return value.map((name) => ({ name, condition: conditions[0] }))
  return Object.entries(value).map(([name, { condition, required = true, restart = false }]) => {
    if (!required)
      fault(['depends_on', name, 'required'], 'must be true: a container waits for all that it needs')
    if (restart) fault(['depends_on', name, 'restart'], 'is not supported: restart the service instead')
    return { name, condition }
  })
}

interface LongHealth {
  test?: string | string[]
  disable?: boolean
  interval?: string
  timeout?: string
  retries?: number
  start_period?: string
}

function healthCheckOf({ keys, fault }: Reading): HealthCheck | 'none' | null {
  const value = keys['healthcheck'] as LongHealth | undefined
  if (!value) return null
  const { test = [], disable = false, retries = 3 } = value
  const [kind, ...rest] = typeof test === 'string' ? ['CMD-SHELL', test] : test
  if (disable || kind === 'NONE') return 'none'
  const seconds = (key: 'interval' | 'timeout' | 'start_period', otherwise: number): number => {
    const given = value[key]
    const read = given === undefined ? otherwise : secondsOf(given)
    if (read === null) fault(['healthcheck', key], 'is not a duration, such as 1m30s')
    else if ((read > 0 && read < 0.001) || read > longestCheckSec)
      fault(['healthcheck', key], 'must be 0, or 1ms to 24h')
    return read ?? otherwise
  }
  if (kind !== 'CMD' && kind !== 'CMD-SHELL')
    fault(['healthcheck', 'test'], 'must be a text, or begin with CMD, CMD-SHELL or NONE')
  if (!Number.isInteger(retries) || retries < 0 || retries > retriesAtMost)
    fault(['healthcheck', 'retries'], `must be a whole number of at most ${retriesAtMost}`)
  return {
    command: kind === 'CMD-SHELL' ? ['/bin/sh', '-c', rest.join(' ')] : rest,
    interval_sec: seconds('interval', 30),
    timeout_sec: seconds('timeout', 30),
    retries,
    start_period_sec: seconds('start_period', 0),
  }
}

const restarts = {
  no: 'no',
  always: 'always',
  'unless-stopped': 'always',
  'on-failure': 'on-failure',
  // As in `deploy.restart_policy`.
  none: 'no',
  any: 'always',
} as const

function restartOf({ keys, fault }: Reading): PlannedContainer['restart'] {
  const { restart_policy } = (keys['deploy'] ?? {}) as { restart_policy?: { condition?: string } }
  const given = (restart_policy?.condition ?? keys['restart'] ?? 'always') as string | false
  const found = given === false ? 'no' : restarts[given as keyof typeof restarts]
  if (!found) fault('restart', 'must be no, always, unless-stopped or on-failure, without a number of tries')
  return found ?? 'always'
}

interface Deploy extends Keys {
  resources?: { limits?: Keys }
  replicas?: number
  restart_policy?: Keys
}

function resourcesOf({ keys, fault }: Reading): Pick<PlannedContainer, 'cpu_cores' | 'memory_mib'> {
  const deploy = (keys['deploy'] ?? {}) as Deploy
  for (const [key, value] of Object.entries(deploy)) {
    if (key === 'replicas' && value === 1) continue
    if (!['resources', 'restart_policy', 'labels'].includes(key)) fault(['deploy', key], 'is not supported')
  }
  for (const key of Object.keys(deploy.restart_policy ?? {}))
    if (key !== 'condition') fault(['deploy', 'restart_policy', key], 'is not supported')
  for (const key of Object.keys(deploy.resources ?? {}))
    if (key !== 'limits') fault(['deploy', 'resources', key], 'is not supported: only limits are')
  const limits = deploy.resources?.limits ?? {}
  for (const key of Object.keys(limits))
    if (key !== 'cpus' && key !== 'memory') fault(['deploy', 'resources', 'limits', key], 'is not supported')
  const cpus = limits['cpus'] ?? keys['cpus'] ?? usual.cpu_cores
  const memory = limits['memory'] ?? keys['mem_limit'] ?? `${usual.memory_mib}m`
  const cpu_cores = Number(cpus)
  const memory_mib = mebibytesOf(memory as string)
  if (!(cpu_cores >= 0.01 && cpu_cores <= 64)) fault('deploy', 'cpus must be 0.01 to 64')
  if (memory_mib === null || memory_mib < 8 || memory_mib > 65_536)
    fault('deploy', 'memory must be 8m to 64g')
  return { cpu_cores, memory_mib: memory_mib ?? usual.memory_mib }
}

function graceOf({ keys, fault }: Reading): number {
  const given = keys['stop_grace_period'] as string | undefined
  if (given === undefined) return usual.stop_grace_sec
  const seconds = secondsOf(given)
  if (seconds === null || seconds > longestGraceSec)
    fault('stop_grace_period', `must be a duration of at most ${longestGraceSec}s`)
  return Math.round(seconds ?? usual.stop_grace_sec)
}
