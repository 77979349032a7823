import { spawn } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { EngineRefused, EngineUnavailable, PortInUse } from '../errors.ts'
import type { MachineSpec } from '../machines.ts'
import type { MachineHost } from './host.ts'
import type { MachinePlace } from './places.ts'
import { inGroups, portsGroup } from './processes.ts'
import { environment, killProcesses, processesWith } from '../system/programs.ts'
import { type BoundPort, portKey, portsMatch } from '../system/host-ports.ts'
import { nullIfMissing } from '../system/files.ts'

// A machine's published ports. A helper process (images/guest/helper) listens on the host and forwards into the VPC's
// namespace, to the machine's first NIC. It has the machine's run folder in its arguments, so it is killed with the
// machine. Its own control groups keep incoming traffic from using the machine's resources.

const limits = { cpu_cores: 1, memory_mib: 256 }

/** The helper's settings, as in images/guest/helper/publish.go. */
interface Published {
  host_namespace: string
  address: string
  namespace: string
  target: string
  ports: BoundPort[]
}

// Each try avoids ports found taken. The limit matters on a host full of foreign listeners.
const tries = 10

/**
 * Opens the requested ports of a running machine and leaves open ones alone. Keeps the former host ports. If another
 * program uses one of them, a start may choose others, which it returns to the caller; otherwise it throws. Throws
 * PortInUse, EngineRefused. Must run in the machine's turn.
 */
export async function publishPorts(
  host: MachineHost,
  id: string,
  { atStart }: { atStart: boolean },
): Promise<void> {
  const place = host.placeOf(id)
  const { spec, ports: had } = await host.needed(id)
  const asked = askedFor(spec, had, atStart)
  const nic = firstNic(spec)
  const { ports: hostPorts, hostNamespace } = host.settings
  const present = await publishedNow(place)
  if (asked.length === 0 || !nic) {
    if (present) await withdrawPorts(place)
    if (had.length > 0) await host.change(id, { ports: [] })
    return
  }
  if (!hostPorts) throw new EngineRefused('The host publishes no ports')
  const to = {
    host_namespace: hostNamespace ?? '',
    address: hostPorts.address,
    namespace: nic.namespace,
    target: nic.ip_address,
  }
  if (present && isSame(present, to) && portsMatch(asked, present.ports)) {
    await host.change(id, { ports: present.ports })
    return
  }
  await withdrawPorts(place)
  const inUse = new Set<string>() // by other programs
  for (let attempt = 0; attempt < tries; attempt++) {
    const ports = await hostPorts.place(id, asked, inUse)
    const clash = await open(host, place, { ...to, ports })
    if (clash === null) {
      await host.change(id, { ports })
      return
    }
    const key = ports.find((port) => portKey(port) === clash)
    if (asked.some((port) => port.host_port !== null && port.host_port === key?.host_port))
      throw new PortInUse(key?.host_port ?? null)
    inUse.add(clash)
  }
  throw new PortInUse(null)
}

/** The request with the former host ports, as a preference or as a requirement. */
const askedFor = (
  { ports = [] }: MachineSpec,
  had: BoundPort[],
  atStart: boolean,
): NonNullable<MachineSpec['ports']> =>
  ports.map((port) => {
    const before = had.find((one) => portsMatch([port], [one]))?.host_port ?? null
    return atStart
      ? { ...port, kept_port: before ?? port.kept_port ?? null }
      : { ...port, host_port: before ?? port.host_port }
  })

const firstNic = ({ nics }: MachineSpec) => nics.find(({ default_route }) => default_route) ?? nics[0]

const isSame = (one: Published, to: Omit<Published, 'ports'>): boolean =>
  Object.entries(to).every(([name, value]) => one[name as keyof Published] === value)

/** What the running helper publishes; null if there is none. */
async function publishedNow(place: MachinePlace): Promise<Published | null> {
  if ((await processesWith(place.ports)).length === 0) return null
  const text = await readFile(place.ports, 'utf8').catch(nullIfMissing)
  return text === null ? null : (JSON.parse(text) as Published)
}

async function withdrawPorts({ ports }: MachinePlace): Promise<void> {
  const helpers = await processesWith(ports)
  await killProcesses(
    helpers.map(({ pid }) => pid),
    ports,
  )
}

/** Starts the helper. Returns the `portKey` of a port that is taken; null when all are open. */
async function open(host: MachineHost, place: MachinePlace, published: Published): Promise<string | null> {
  await writeFile(place.ports, JSON.stringify(published), { mode: 0o600 })
  const { helper } = await host.boot()
  const command = await inGroups(host.mark, portsGroup(place.id), limits, [helper, 'publish', place.ports])
  // Detached: it outlives this worker, like the machine.
  const child = spawn('sh', command, {
    env: environment,
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  child.on('error', () => {}) // then it has no output
  child.unref()
  let said = ''
  for await (const data of child.stdout) {
    said += String(data)
    if (said.includes('\n')) break
  }
  if (said.startsWith('ready')) return null
  const [, clash] = /^in use (\S+)/.exec(said) ?? []
  if (clash) return clash
  throw new EngineUnavailable('The machine’s ports could not be opened on its host')
}
