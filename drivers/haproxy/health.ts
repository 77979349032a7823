import type {
  LoadBalancerState,
  RouteTargets,
  TargetHealth,
  TargetSpec,
  UnreachedTarget,
} from '../load-balancers.ts'
import { routeOf, targetOf } from '../../lib/access-log.ts'
import type { LoadBalancerRecord } from './records.ts'
import type { StatRow } from './runtime.ts'

// The health of targets, from HAProxy's own statistics.

type Targets = LoadBalancerState['targets']

/** Health by route and target as last known, for targets whose first check after a reload is not done. */
export type Known = Map<string, TargetHealth>

const keyOf = (route: string, target: string): string => `${route} ${target}`

/** All targets of the record, in its order. Without rows, nothing runs. */
export function targetsOf({ spec, refused }: LoadBalancerRecord, rows: StatRow[], known: Known): Targets {
  const found = new Map<string, { checked: StatRow; connections: number }>()
  for (const row of rows) {
    const [route, target] = [routeOf(row.pxname ?? ''), targetOf(row.svname ?? '')]
    if (route === null || target === null) continue
    const key = keyOf(route, target)
    const before = found.get(key)
    const connections = (before?.connections ?? 0) + Number(row.scur ?? 0)
    // The route's first backend checks; the others follow it.
    found.set(key, { checked: before?.checked ?? row, connections })
  }
  const inEffect = spec.routes.filter(
    ({ id, redirect }) => !redirect && !refused.some(({ route_id }) => route_id === id),
  )
  return inEffect.flatMap((route) =>
    route.targets.map((target) => {
      const key = keyOf(route.id, target.id)
      const seen = found.get(key)
      const health = seen ? healthOf(target, seen.checked, known.get(key)) : 'unknown'
      if (health !== 'unknown') known.set(key, health)
      return { route_id: route.id, target_id: target.id, health, connections: seen?.connections ?? 0 }
    }),
  )
}

function healthOf({ state }: TargetSpec, row: StatRow, before: TargetHealth | undefined): TargetHealth {
  if (state === 'draining') return 'draining'
  if (state === 'stopped') return 'unhealthy'
  const status = row.status ?? ''
  if (status.startsWith('DOWN') || status.startsWith('MAINT')) return 'unhealthy'
  const isUnchecked = ['', 'INI', 'UNK'].includes(lastCheck(row))
  if (!isUnchecked) return 'healthy'
  return before === 'healthy' ? before : 'unknown'
}

// HAProxy says `* ` before the last check's status while the next check runs.
const running = '* '

const lastCheck = ({ check_status = '' }: StatRow): string => check_status.replace(running, '')

/** One look at the servers. Both times are in milliseconds. */
export interface Look {
  /** The process that says so. A reload begins another one, which shows results of the former one as its own. */
  worker: string
  rows: StatRow[]
  askedAt: number
  answeredAt: number
}

// HAProxy may have other work when the interval ends.
const startsWithinMs = 250

/**
 * Follows the checks of targets, to tell which have passed a check that began after the first look. HAProxy tells neither
 * when a check began nor how many there were. But what ends after a look that saw no check running began after that look,
 * and the next check begins an interval later at most.
 */
export class NewChecks {
  readonly #wanted: { route_id: string; target_id: string }[]
  readonly #nextWithinMs: number
  #worker = ''
  /** By target: what the first look said that saw no check running, and whether a check has ended since. */
  readonly #before = new Map<string, { at: number; said: string; isOver: boolean }>()

  constructor(targets: RouteTargets[], intervalSec: number) {
    this.#wanted = targets.flatMap(({ route_id, target_ids }) =>
      target_ids.map((target_id) => ({ route_id, target_id })),
    )
    this.#nextWithinMs = intervalSec * 1000 + startsWithinMs
  }

  /** The targets that have not passed a new check yet. */
  unreached({ worker, rows, askedAt, answeredAt }: Look): UnreachedTarget[] {
    if (worker !== this.#worker) this.#before.clear()
    this.#worker = worker
    const found = new Map<string, StatRow>()
    for (const row of rows) {
      const key = keyOf(routeOf(row.pxname ?? '') ?? '', targetOf(row.svname ?? '') ?? '')
      if (!found.has(key)) found.set(key, row) // the route's first backend checks
    }
    return this.#wanted.flatMap(({ route_id, target_id }) => {
      const key = keyOf(route_id, target_id)
      const row = found.get(key)
      if (row) this.#note(key, row, askedAt, answeredAt)
      const reason = row ? whyNot(row) : 'the load balancer has no such target'
      if (this.#before.get(key)?.isOver && reason === null) return []
      return [{ route_id, target_id, reason: reason ?? 'it was not checked again' }]
    })
  }

  #note(key: string, row: StatRow, askedAt: number, answeredAt: number): void {
    if (row.check_status?.startsWith(running)) return
    const said = `${row.check_status} ${row.check_duration}`
    const before = this.#before.get(key)
    if (!before) this.#before.set(key, { at: answeredAt, said, isOver: false })
    else if (said !== before.said || askedAt - before.at > this.#nextWithinMs) before.isOver = true
  }
}

const reasons: Record<string, string> = {
  SOCKERR: 'no connection could be opened',
  L4TOUT: 'it did not accept the connection in time',
  L4CON: 'it refused the connection or cannot be reached',
  L6TOUT: 'it did not finish the TLS handshake in time',
  L6RSP: 'it does not answer over TLS',
  L7TOUT: 'it did not answer in time',
  L7RSP: 'it does not answer as expected',
  L7STS: 'it answered with another status',
}

/** Why the target is not healthy; null if it is up and its last check passed. */
function whyNot(row: StatRow): string | null {
  const status = row.status ?? ''
  if (status.startsWith('MAINT')) return 'its instance does not run'
  const check = lastCheck(row)
  if (!/^L\d(OK|OKC)$/.test(check)) return reasons[check] ?? 'it was not checked'
  return status.startsWith('DOWN') ? 'not enough checks have passed' : null
}
