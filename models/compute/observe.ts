import type { HostReport, ReportAnswer, ThingOnHost } from '../../lib/host-protocol.ts'
import { InvalidInput, Problem } from '../../lib/problem.ts'
import { isDuplicateKey } from '../database.ts'
import { archiveObserver } from '../deploy/archive-orders.ts'
import { databaseMetricsObserver } from '../deploy/database-metrics.ts'
import { databaseUsersObserver } from '../deploy/database-users.ts'
import { hearAgain } from '../network/host-networks.ts'
import { loadBalancerObserver } from '../network/observe-load-balancers.ts'
import { networkObserver } from '../network/observe-networks.ts'
import { diskObserver } from '../storage/observe.ts'
import { Host } from './hosts.ts'
import { forgetFormerHost } from './log-archive.ts'
import { instanceObserver } from './observe-instances.ts'
import type { Observer } from './observer.ts'

/** The observer of each part of a host (worker/host/part.ts). */
const observers: Record<string, Observer> = {
  instances: instanceObserver,
  disks: diskObserver,
  load_balancers: loadBalancerObserver,
  networks: networkObserver,
  database_users: databaseUsersObserver,
  database_metrics: databaseMetricsObserver,
  database_archives: archiveObserver,
}

/** Handles a host's report: records the host's own facts, and passes the things to the observers of their kinds. */
export async function observe(hostId: string, report: HostReport): Promise<Omit<ReportAnswer, 'jwks'>> {
  const data_plane_url = await recordHost(hostId, report)
  const answer: Omit<ReportAnswer, 'jwks'> = { data_plane_url, not_yours: [], things: [], wanted: {} }
  for (const [name, observer] of Object.entries(observers)) {
    const seen = report.things.filter(({ kind }) => observer.kinds?.includes(kind))
    const kindOf = new Map(seen.map(({ id, kind }) => [id, kind]))
    const isSeen = !observer.kinds?.some((kind) => report.unseen.includes(kind))
    const observed = isSeen
      ? await observer.observe?.(hostId, parse(observer, seen) as never[], report.age_ms)
      : undefined
    for (const id of observed?.not_yours ?? []) answer.not_yours.push({ id, kind: kindOf.get(id) ?? '' })
    answer.things.push(...(observed?.things ?? []))
    const version = await observer.wanted?.(hostId)
    if (version !== undefined) answer.wanted[name] = version
  }
  if (report.unseen.length > 0) return answer // the rest needs to know everything on the host
  await forgetFormerHost(
    hostId,
    report.things.map(({ id }) => id),
  )
  // A disk has no address, so only the others keep the host cut off.
  if (answer.not_yours.every(({ kind }) => kind === 'disk')) await hearAgain(hostId)
  return answer
}

/** Throws InvalidInput. */
function parse({ schema }: Observer, things: ThingOnHost[]): unknown[] {
  return things.map((thing) => {
    const parsed = schema?.safeParse(thing)
    if (!parsed?.error) return parsed?.data
    const errors = parsed.error.issues.map(({ path, message }) => ({
      pointer: `/things/${[thing.id, ...path].join('/')}`,
      message,
    }))
    throw new InvalidInput(422, errors)
  })
}

/** Returns the URL by which the platform reaches the host. */
async function recordHost(hostId: string, report: HostReport): Promise<string> {
  const { capacity, engine, machines, kinds, address, underlay_address, published_ports } = report
  const { data_plane_certificate, tunnel_key } = report
  const data_plane_url = await reachedAt(hostId, report.data_plane_url)
  // A host worker that has just started does not know its engine yet: the record keeps what it said before.
  const isUnknown = machines === null && kinds.includes('microvm')
  await Host.updateOne(
    { _id: hostId },
    {
      $set: {
        capacity,
        engine,
        ...(isUnknown ? {} : { machines }),
        kinds,
        data_plane_url,
        data_plane_certificate,
        address,
        underlay_address,
        tunnel_key,
        published_ports,
        last_report_at: new Date(),
      },
    },
  ).catch((error: unknown) => {
    if (isDuplicateKey(error) && 'tunnel_key' in error.keyPattern) throw new TunnelKeyTaken(error)
    throw error
  })
  return data_plane_url
}

/** Who takes another host's key would take what is meant for it, or silence it. */
class TunnelKeyTaken extends Problem {
  constructor(cause: unknown) {
    const detail =
      'Delete the host that has it, or remove tunnel.json in the state folder: the host then makes another'
    super(409, 'tunnel_key_taken', 'Another host has this tunnel key', detail, { cause })
  }
}

/**
 * A host chooses the port of its data plane, but never another address than the one it enrolled with: the API would
 * otherwise send requests wherever a host says.
 */
async function reachedAt(hostId: string, reported: string): Promise<string> {
  const host = await Host.findById(hostId, { data_plane_url: 1 }).lean()
  const enrolled = host?.data_plane_url
  return !enrolled || new URL(enrolled).hostname === new URL(reported).hostname ? reported : enrolled
}
