import { EngineError } from '../errors.ts'
import type { LeftOut, LoadBalancerState, RouteSpec } from '../load-balancers.ts'
import { digest } from '../system/digest.ts'
import { isIn } from './certificates.ts'
import { type Entrance, frontendOf, noRoute } from './listeners.ts'
import { inOrder } from './order.ts'
import { type Backend, type Server, takingLines, targetDefaults } from './routes.ts'
import {
  baseDefaults,
  type ConfigText,
  lineOf,
  linesOf,
  type Section,
  type Words,
  writeSections,
} from './text.ts'

export type Refusal = LoadBalancerState['refused'][number]

/** A whole configuration. */
export interface Document extends ConfigText {
  servers: Server[]
  /** A hash of everything that only a reload can change. The running process tells which one it has. */
  version: string
  routes: Map<RouteSpec, Backend[]>
  refused: Refusal[]
  left_out: LeftOut[]
}

/** Whom HAProxy's workers run as. */
export interface ProxyUser {
  user: string
  group: string
}

/**
 * A thread that finds another one writing the log waits some microseconds and then drops its line, which metrics count:
 * 22 of 8,000 were dropped on a busy machine. More than a core serves, replicas do.
 */
const threads = 1
/** Connections of one process. Each needs up to 40 KiB, more with TLS. */
const mostConnections = 5_000
const drainsWithin = '60s'
/** Workers that still serve connections from before a reload. Each uses some 20 MiB. */
const mostFormer = 10
/** See processes.ts: the process is started with its log as this descriptor. */
const logTarget = 'fd@3'

/** What a configuration is made of. */
export interface Draft extends Omit<Entrance, 'routes'> {
  user: ProxyUser
  /** A hash of the files beside the configuration. */
  secrets: string
  /** Routes that HAProxy refused before. */
  refused: Refusal[]
  left_out: LeftOut[]
  /** Throws EngineRefused for a route that is not valid. */
  backendsOf: (route: RouteSpec) => Backend[]
}

/** Routes and listeners that are not valid are left out. */
export function writeDocument(entrance: Draft): Document {
  const { spec, user, secrets } = entrance
  const refused = [...entrance.refused]
  const left_out = [...entrance.left_out]
  const taken = new Map<RouteSpec, Backend[]>()
  for (const route of inOrder(spec.routes)) {
    if (refused.some(({ route_id }) => route_id === route.id)) continue
    try {
      // Rendered here, a character that is not allowed refuses its route and no more.
      takingLines(route, 0).map(lineOf)
      const backends = entrance.backendsOf(route)
      for (const { section } of backends) linesOf(section)
      taken.set(route, backends)
    } catch (error) {
      if (!(error instanceof EngineError)) throw error
      refused.push({ route_id: route.id, reason: error.message })
    }
  }
  const routes = [...taken.keys()]
  const backends = [...taken.values()].flat()
  const owners = new Map<Words, string>()
  const frontends = spec.listeners.flatMap((listener) => {
    if (isIn(left_out, 'listener', listener.port)) return []
    try {
      return [frontendOf({ ...entrance, routes }, listener, owners)]
    } catch (error) {
      if (!(error instanceof EngineError)) throw error
      left_out.push({ kind: 'listener', id: String(listener.port), reason: error.message })
      return []
    }
  })
  const body = [
    defaults,
    ...targetDefaults(spec.health_check),
    ...frontends,
    nowhere,
    ...backends.map(({ section }) => section),
  ]
  const servers = backends.flatMap((backend) => backend.servers)
  const { text, routeAt } = writeSections([global(entrance, user), ...body], owners)
  const fixed = text.replaceAll(/^ {2}server .*\n/gm, '')
  const version = digest([fixed, secrets, JSON.stringify(servers.map(fixedPart))].join('\0'), 32)
  // Rendered once: a thousand routes are 28,000 lines. The first line of the first section is this one.
  const named = text.replace(`${unnamed}\n`, `${unnamed}${version}\n`)
  return { text: named, routeAt, servers, version, routes: taken, refused, left_out }
}

const unnamed = 'description keelson:'

/** The part of a server that the runtime API does not change. */
const fixedPart = ({ backend, name, options }: Server): Words => [backend, name, ...options]

const ciphers = [
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
]
  .concat(['ECDHE-RSA-AES256-GCM-SHA384', 'ECDHE-ECDSA-CHACHA20-POLY1305', 'ECDHE-RSA-CHACHA20-POLY1305'])
  .join(':')
const suites = 'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256'

const global = ({ place }: Pick<Entrance, 'place'>, { user, group }: ProxyUser): Section => ({
  head: ['global'],
  lines: [
    unnamed.split(' '),
    ['user', user],
    ['group', group],
    ['chroot', place.root],
    ['nbthread', threads],
    ['maxconn', mostConnections],
    ['hard-stop-after', drainsWithin],
    ['mworker-max-reloads', mostFormer],
    ['stats', 'socket', place.admin, 'mode', '600', 'level', 'admin', 'expose-fd', 'listeners'],
    ['log', logTarget, 'len', 16_384, 'format', 'raw', 'local0'],
    ['server-state-file', place.servers],
    ['ssl-default-bind-ciphers', ciphers],
    ['ssl-default-bind-ciphersuites', suites],
    ['ssl-default-bind-options', 'prefer-client-ciphers', 'ssl-min-ver', 'TLSv1.2', 'no-tls-tickets'],
    ['ssl-default-server-options', 'ssl-min-ver', 'TLSv1.2'],
    ['tune.ssl.default-dh-param', 2048],
  ],
})

const defaults: Section = {
  head: ['defaults', baseDefaults],
  lines: [
    ['mode', 'http'],
    ['log', 'global'],
    ['maxconn', mostConnections],
    ['load-server-state-from-file', 'global'],
    ['unique-id-format', '%[uuid()]'],
    ['option', 'dontlognull'],
    ['option', 'idle-close-on-response'],
    ['option', 'http-ignore-probes'],
    ['option', 'redispatch', 1],
    ['retries', 3],
    // A connection inside one network takes a millisecond; a machine that is gone does not answer at all.
    ['timeout', 'connect', '2s'],
    ['timeout', 'client', '60s'],
    ['timeout', 'server', '60s'],
    ['timeout', 'queue', '10s'],
    ['timeout', 'http-request', '10s'],
    ['timeout', 'http-keep-alive', '60s'],
  ],
}

const nowhere: Section = {
  head: ['backend', noRoute, 'from', baseDefaults],
  lines: [
    ['http-request', 'return', 'status', 404, 'content-type', 'text/plain', 'string', 'No route matches'],
  ],
}
