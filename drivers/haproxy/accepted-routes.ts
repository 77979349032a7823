import { createHash } from 'node:crypto'
import type { RouteSpec } from '../load-balancers.ts'
import type { Backend } from './routes.ts'

/**
 * The routes of a load balancer that HAProxy has accepted, with their backends. Those depend on no other route, so a
 * change renders and checks only the routes that it changes: all thousand would take half a second.
 */
export class AcceptedRoutes {
  #around = ''
  #routes = new Map<string, Backend[]>()

  /** `around`: everything else that the backends depend on. Undefined if HAProxy has not accepted the route with it. */
  find(around: string, route: RouteSpec): Backend[] | undefined {
    return around === this.#around ? this.#routes.get(keyOf(route)) : undefined
  }

  /** Forgets all others. */
  take(around: string, routes: Map<RouteSpec, Backend[]>): void {
    this.#around = around
    this.#routes = new Map([...routes].map(([route, backends]) => [keyOf(route), backends]))
  }

  forget(): void {
    this.#routes.clear()
  }
}

const keys = new WeakMap<RouteSpec, string>()

function keyOf(route: RouteSpec): string {
  const key = keys.get(route) ?? hashOf(route)
  keys.set(route, key)
  return key
}

export const hashOf = (value: unknown): string =>
  createHash('sha256').update(JSON.stringify(value)).digest('base64')
