import { type Condition, type ComposePlan, type PlannedContainer, rowsOf } from './plan.ts'
import { containerOf } from './containers.ts'
import { faultsOfShape } from './schema.ts'
import { type Fault, type ParsedText, parseText, type Path, refusal } from './text.ts'
import { faultsOfKeys, type Keys } from './keys.ts'
import type { Surroundings } from './reading.ts'
import { interpolate, type Lookup, variablesIn } from './variables.ts'

// A compose file: parsed, then rendered with the values of its variables. Pure functions.

const atMost = { services: 20, volumes: 20, configs: 20, networks: 5 } as const
const variablesAtMost = 500
/** A Swarm takes no config of a megabyte. */
const contentAtMostKib = 500
/** The record of a service holds three plans, sealed, and MongoDB takes no record of 16 MiB. */
const planAtMostMib = 2

export interface ComposeFile {
  text: ParsedText
  /** The variables that it uses. */
  variables: string[]
  /** Its containers, also if they cannot be rendered yet. */
  names: string[]
}

/** Parses a compose file. Throws InvalidInput with the line of each fault. */
export function readCompose(source: string): ComposeFile {
  const text = parseText(source)
  const { value } = text
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw refusal(text, [{ path: [], message: 'must be a compose file, with `services`' }])
  const { services } = value as { services?: object }
  const variables = variablesIn(value)
  if (variables.length > variablesAtMost)
    throw refusal(text, [{ path: [], message: `has more than ${variablesAtMost} variables` }])
  return { text, variables, names: Object.keys(services ?? {}) }
}

/** The storages of a service, as far as its text must leave room for them. */
export type TakenPaths = readonly { container?: string; mount_path: string }[]

/** Renders a compose file. Throws InvalidInput with the line of each fault. */
export function renderCompose({ text }: ComposeFile, lookup: Lookup, storages: TakenPaths = []): ComposePlan {
  const faults: Fault[] = []
  const value = interpolate(text.value, lookup, faults)
  if (faults.length === 0) faults.push(...faultsOfShape(value))
  if (faults.length) throw refusal(text, faults)
  const plan = planOf(value as File, storages, faults)
  if (faults.length) throw refusal(text, faults)
  return plan
}

type Named = Record<string, Keys | null>
interface File extends Keys {
  services?: Record<string, Keys>
  volumes?: Named | null
  networks?: Named | null
  configs?: Named | null
}

const known = new Set(['version', 'name', 'services', 'volumes', 'networks', 'configs'])

function planOf(file: File, storages: TakenPaths, faults: Fault[]): ComposePlan {
  faults.push(...faultsOfKeys(file, known, []))
  for (const [key, most] of Object.entries(atMost))
    if (Object.keys(file[key] ?? {}).length > most)
      faults.push({ path: [key], message: `has more than ${most}` })
  const services = Object.entries(file.services ?? {})
  if (services.length === 0) faults.push({ path: ['services'], message: 'has no container' })
  const around = surroundingsOf(file, storages, faults)
  const containers = services.map(([name, keys]) =>
    containerOf(name, keys, around, faults, ['services', name]),
  )
  faults.push(...faultsOfNames(containers), ...faultsOfOrder(containers), ...faultsOfSize(containers))
  return {
    containers,
    networks: networksOf(file.networks ?? {}, containers, faults),
    volumes: [...around.volumes],
  }
}

function surroundingsOf(file: File, storages: TakenPaths, faults: Fault[]): Surroundings {
  const onlyPlain = (key: 'volumes', allowed: string[]): string[] =>
    Object.entries(file[key] ?? {}).map(([name, options]) => {
      for (const [option, value] of Object.entries(options ?? {}))
        if (!allowed.includes(option) && !(option === 'driver' && value === 'local') && value !== false)
          faults.push({ path: [key, name, option], message: 'is not allowed: a volume is the service’s own' })
      return name
    })
  const configs = Object.entries(file.configs ?? {}).map(([name, options]): [string, string] => {
    const { content: given, ...others } = options ?? {}
    const content = typeof given === 'string' ? given : ''
    for (const option of Object.keys(others))
      faults.push({ path: ['configs', name, option], message: 'is not supported: give the `content`' })
    if (!content) faults.push({ path: ['configs', name], message: 'has no content' })
    else if (Buffer.byteLength(content) > contentAtMostKib * 1024)
      faults.push({ path: ['configs', name], message: `has more than ${contentAtMostKib} KiB` })
    return [name, content]
  })
  return {
    volumes: new Set(onlyPlain('volumes', ['labels'])),
    networks: new Set(Object.keys(file.networks ?? {})),
    configs: new Map(configs),
    storages: new Map(
      [...Map.groupBy(storages, ({ container = '' }) => container)].map(([container, its]) => [
        container,
        its.map(({ mount_path }) => mount_path),
      ]),
    ),
  }
}

const plainDrivers = ['bridge', 'overlay']

function networksOf(given: Named, containers: PlannedContainer[], faults: Fault[]): ComposePlan['networks'] {
  for (const [name, options] of Object.entries(given))
    for (const [option, value] of Object.entries(options ?? {})) {
      const isPlain =
        option === 'internal' ||
        option === 'labels' ||
        (option === 'driver' && plainDrivers.includes(value as string)) ||
        value === false
      if (!isPlain)
        faults.push({
          path: ['networks', name, option],
          message: 'is not allowed: a network is the service’s own',
        })
    }
  const used = new Set(containers.flatMap(({ networks }) => networks.map(({ name }) => name)))
  return [...used].map((name) => ({ name, internal: given[name]?.['internal'] === true }))
}

/** `my_App.web` → `my-app-web`: as it is in host names. */
export const hostLabelOf = (name: string): string =>
  name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')

function faultsOfNames(containers: PlannedContainer[]): Fault[] {
  const labels = new Map<string, string>()
  return containers.flatMap(({ name }) => {
    const path: Path = ['services', name]
    const label = hostLabelOf(name)
    if (!label || label.length > 40 || name.length > 40)
      return [{ path, message: 'must have a name of 1 to 40 letters, digits, `_`, `.` and `-`' }]
    const other = labels.get(label)
    labels.set(label, name)
    return other === undefined ? [] : [{ path, message: `has the same host name as ${other}` }]
  })
}

/** A file counts each time that it is mounted. */
function faultsOfSize(containers: PlannedContainer[]): Fault[] {
  let left = planAtMostMib * 1024 ** 2
  for (const { name, files, ...others } of containers)
    for (const part of [others, ...files]) {
      left -= Buffer.byteLength(JSON.stringify(part))
      if (left >= 0) continue
      const message = `has, with those before it, more than ${planAtMostMib} MiB in its files, environment and commands`
      return [{ path: ['services', name], message }]
    }
  return []
}

function faultsOfOrder(containers: PlannedContainer[]): Fault[] {
  const byName = new Map(containers.map((one) => [one.name, one]))
  const faults = containers.flatMap(({ name, depends_on }) =>
    depends_on.flatMap((needed): Fault[] => {
      const path: Path = ['services', name, 'depends_on', needed.name]
      const other = byName.get(needed.name)
      const message = other ? mismatch(needed.condition, other) : `${needed.name} is not in this text`
      return message ? [{ path, message }] : []
    }),
  )
  if (faults.length || rowsOf(containers)) return faults
  return [{ path: ['services'], message: 'depend on each other in a circle' }]
}

function mismatch(condition: Condition, { health_check, restart }: PlannedContainer): string | null {
  if (condition === 'service_healthy' && health_check === 'none') return 'has no health check'
  if (condition === 'service_completed_successfully' && restart === 'always')
    return 'never completes: it must have `restart: "no"` or on-failure'
  return null
}
