import { createHash } from 'node:crypto'
import { EngineRefused } from '../errors.ts'
import { overlap, parseCidr, toAddress } from '../../lib/ipv4.ts'
import { addressLines, type Lines, type Links, type Route } from './commands.ts'
import type { Host } from './host.ts'
import { uplinkInside } from './names.ts'

// A VPC's uplink: a veth pair between its namespace and the host's, with four addresses of a pool. Both ends translate
// addresses, because the host does not know the VPC's, and the internet does not know the uplink's.

export interface Uplink {
  /** The four addresses. */
  cidr: string
  /** With the prefix length. */
  hostAddress: string
  vpcAddress: string
  /** The host's end, without the prefix length. */
  gateway: string
}

function uplinkAt(first: number): Uplink {
  const gateway = toAddress(first + 1)
  return {
    cidr: `${toAddress(first)}/30`,
    hostAddress: `${gateway}/30`,
    vpcAddress: `${toAddress(first + 2)}/30`,
    gateway,
  }
}

/**
 * The present addresses of the VPC's uplink, or free ones: those without a route on the host. Throws EngineRefused.
 */
export function placeUplink(host: Host, vpcId: string, links: Links, routes: Route[]): Uplink {
  const pool = parseCidr(host.uplinkPool)
  if (!pool) throw new EngineRefused(`The uplinks’ pool is not valid: ${host.uplinkPool}`)
  const present = links.get(host.names.uplink(vpcId))?.addr_info.find(({ family }) => family === 'inet')
  const kept = present && parseCidr(`${present.local}/${present.prefixlen}`)
  if (kept?.prefix === 30 && overlap(kept, pool)) return uplinkAt(kept.first)

  const taken = [...links.values()]
    .flatMap(({ addr_info }) => addr_info.map(({ local }) => local))
    .concat(routes.map(({ dst }) => dst))
    .flatMap((text) => parseCidr(text) ?? [])
    // A route that covers the whole pool is a default route, not a use of the pool.
    .filter((range) => overlap(range, pool) && range.last - range.first < pool.last - pool.first)
  const count = Math.floor((pool.last - pool.first + 1) / 4)
  const start = createHash('sha256').update(vpcId).digest().readUInt32BE()
  for (let step = 0; step < count; step++) {
    const first = pool.first + ((start + step) % count) * 4
    const range = { first, last: first + 3, prefix: 30 }
    if (!taken.some((other) => overlap(range, other))) return uplinkAt(first)
  }
  throw new EngineRefused(`No address is free in ${host.uplinkPool}`)
}

/** Makes the pair in the host's namespace, or removes it if no subnet needs it. */
export function linkUplink(
  { names }: Host,
  vpcId: string,
  place: Uplink | null,
  { links, inside }: { links: Links; inside: Links },
): Lines {
  const name = names.uplink(vpcId)
  const end = links.get(name)
  if (!place) return end ? [['link', 'delete', name]] : []
  const paired = end !== undefined && inside.get(uplinkInside)?.ifindex === end.link_index
  const lines: Lines = []
  if (end && !paired) lines.push(['link', 'delete', name])
  if (!paired) {
    lines.push(['link', 'add', name, 'type', 'veth', 'peer', 'name', uplinkInside, 'netns', names.vpc(vpcId)])
  }
  lines.push(...addressLines(paired ? end : undefined, name, place.hostAddress))
  const alias = names.label('vpc', vpcId)
  if (!paired || end.ifalias !== alias || !end.flags.includes('UP'))
    lines.push(['link', 'set', name, 'alias', alias, 'up'])
  return lines
}

/** Lines for the VPC's namespace: address and default route. */
export function uplinkLines(place: Uplink, links: Links, routes: Route[], alias: string): Lines {
  const end = links.get(uplinkInside)
  const lines = addressLines(end, uplinkInside, place.vpcAddress)
  if (end?.ifalias !== alias || !end.flags.includes('UP'))
    lines.push(['link', 'set', uplinkInside, 'alias', alias, 'up'])
  if (!routes.some(({ dst, gateway }) => dst === 'default' && gateway === place.gateway))
    lines.push(['route', 'replace', 'default', 'via', place.gateway, 'dev', uplinkInside])
  return lines
}
