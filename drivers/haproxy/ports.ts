import { EngineRefused, PortInUse } from '../errors.ts'
import { runIn } from '../linux/commands.ts'
import type { LoadBalancerSpec } from '../load-balancers.ts'
import { type HostPorts, portKey } from '../system/host-ports.ts'
import type { BoundListener, Outside } from './listeners.ts'

// The host's ports of listeners.

/** The ports on which programs listen in the namespace, at this address or at all. */
async function listenedAt({ address, namespace }: Outside): Promise<Set<number>> {
  const text = await runIn(namespace, 'cat', ['/proc/net/tcp', '/proc/net/tcp6'])
  const own = address
    .split('.')
    .toReversed()
    .map((byte) => Number(byte).toString(16).padStart(2, '0'))
    .join('')
    .toUpperCase()
  const found = [...text.matchAll(/^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) \S+ 0A /gm)]
  const isOurs = (at: string): boolean => /^0+$/.test(at) || at === own || at.endsWith(`FFFF0000${own}`)
  return new Set(
    found.filter(([, at = '']) => isOurs(at)).map(([, , port = '']) => Number.parseInt(port, 16)),
  )
}

/** HTTP and HTTPS: a load balancer may have these besides the host's range. */
const browsersPorts = [80, 443]

// Each try avoids ports found taken. The limit matters on a host full of foreign listeners.
const tries = 10

/**
 * Chooses a host port for each listener; one that the load balancer had stays. `avoid`: ports that a start found taken.
 * Throws PortInUse, EngineRefused.
 */
export async function choosePorts(
  { id, listeners }: LoadBalancerSpec,
  {
    had,
    held,
    avoid,
    hostPorts,
    outside,
  }: {
    had: BoundListener[]
    /** The ports that the load balancer's own process listens on. */
    held: ReadonlySet<number>
    avoid: ReadonlySet<number>
    hostPorts: HostPorts
    outside: Outside
  },
): Promise<BoundListener[]> {
  if (new Set(listeners.map(({ port }) => port)).size < listeners.length)
    throw new EngineRefused('Two listeners have the same port')
  const asked = listeners.map(({ port, host_port }) => ({
    container_port: port,
    protocol: 'tcp' as const,
    host_port,
    kept_port: had.find((one) => one.port === port)?.host_port ?? null,
  }))
  const kept = asked.flatMap(({ host_port, kept_port }) =>
    kept_port !== null && held.has(kept_port) && [null, kept_port].includes(host_port) ? [kept_port] : [],
  )
  if (kept.length === listeners.length)
    return listeners.map(({ port, protocol }, index) => ({ port, protocol, host_port: kept[index] ?? 0 }))
  const inUse = new Set([...avoid].map((host_port) => portKey({ host_port, protocol: 'tcp' })))
  const listened = await listenedAt(outside)
  for (let attempt = 0; attempt < tries; attempt++) {
    const placed = await hostPorts.place(id, asked, inUse, browsersPorts)
    const clashes = placed.filter(
      ({ host_port }) => avoid.has(host_port) || (listened.has(host_port) && !held.has(host_port)),
    )
    const wanted = clashes.find(({ host_port }) => asked.some((one) => one.host_port === host_port))
    if (wanted) throw new PortInUse(wanted.host_port)
    if (clashes.length === 0)
      return listeners.map(({ port, protocol }, index) => ({
        port,
        protocol,
        host_port: placed[index]?.host_port ?? 0,
      }))
    for (const clash of clashes) inUse.add(portKey(clash))
  }
  throw new PortInUse(null)
}
