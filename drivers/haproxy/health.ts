import type { LoadBalancerState, TargetHealth, TargetSpec } from '../load-balancers.ts'
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
  const isUnchecked = ['', 'INI', 'UNK'].includes((row.check_status ?? '').replace('* ', ''))
  if (!isUnchecked) return 'healthy'
  return before === 'healthy' ? before : 'unknown'
}
