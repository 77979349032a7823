import { EngineRefused } from '../errors.ts'
import type { HealthCheckSpec, LoadBalancerSpec, RouteSpec, TargetSpec } from '../load-balancers.ts'
import { digest } from '../system/digest.ts'
import type { Place } from './places.ts'
import { caFile } from './certificates.ts'
import { takes, takesBytes } from './protocols.ts'
import { baseDefaults, type Section, type Words } from './text.ts'
import {
  aCount,
  aHeader,
  aHeaderValue,
  aHostName,
  aMethod,
  anAddress,
  anId,
  aPath,
  aPort,
  aRedirectStatus,
  aRedirectUrl,
  aRegex,
  asFormat,
  asRegex,
  aTime,
} from './values.ts'

// A route as sections of the configuration: a backend with everything that it does to a request, and the conditions
// under which a frontend takes it.

/** The kinds of backends of one route, and the first letter of their names. */
export const kinds = {
  /** HTTP/1.1 to the targets. Also checks their health. */
  http: 'r',
  /** HTTP/2 to the targets, for gRPC. */
  grpc: 'g',
  /** What comes through a listener for TCP or TLS. */
  tcp: 't',
} as const
type Kind = keyof typeof kinds

export const backendName = (kind: Kind, id: string): string => `${kinds[kind]}-${id}`
export const serverName = (id: string): string => `s-${anId(id)}`

/** A server: what the runtime API can change, and the rest. */
export interface Server {
  backend: string
  name: string
  address: string
  port: number
  weight: number
  stopped: boolean
  options: Words
}

export interface Backend {
  section: Section
  servers: Server[]
}

const serverLine = ({ name, address, port, weight, stopped, options }: Server): Words => [
  'server',
  name,
  `${address}:${port}`,
  'weight',
  weight,
  ...options,
  ...(stopped ? ['disabled'] : []),
]

/** The backends of a route. Throws EngineRefused for a value that is not valid. */
export function backendsOf(spec: LoadBalancerSpec, route: RouteSpec, place: Place): Backend[] {
  anId(route.id)
  if (route.redirect) return [redirectBackend(route, route.redirect)]
  const checks = checkLines(spec.health_check, route)
  const listeners = spec.listeners.filter((one) => takes(route, one))
  const takesHttp = listeners.some((one) => !takesBytes(one))
  const owner = takesHttp ? 'http' : 'tcp'
  const backends: Backend[] = []
  if (takesHttp) {
    backends.push(
      backend('http', route, {
        lines: [...checks, ...httpLines(spec, route)],
        servers: checked(spec, route, place, 'http'),
      }),
      backend('grpc', route, {
        lines: httpLines(spec, route),
        servers: tracking(spec, route, place, 'grpc', owner),
      }),
    )
  }
  if (isForTcp(route) && listeners.some(takesBytes))
    backends.push(
      backend('tcp', route, {
        lines: takesHttp ? [] : checks,
        servers: takesHttp ? tracking(spec, route, place, 'tcp', owner) : checked(spec, route, place, 'tcp'),
      }),
    )
  return backends
}

/** Whether a listener for TCP or TLS can take the route: it asks for nothing that only HTTP has. */
export const isForTcp = (route: RouteSpec): boolean =>
  !route.redirect && route.host_match === null && route.path_match === null && route.method === null

const longestStreams = (route: RouteSpec): string => aTime(route.idle_timeout_sec, 'The idle timeout')

// What the backends of all routes share stands once: HAProxy reads a thousand routes in half the time.
const checkedDefaults = 'checked'
const targetsDefaults = 'targets'

export const targetDefaults = (check: HealthCheckSpec): Section[] => [
  {
    head: ['defaults', checkedDefaults, 'from', baseDefaults],
    lines: [
      ['balance', 'roundrobin'],
      ['timeout', 'check', aTime(check.timeout_sec, 'The timeout of a health check')],
      [
        'default-server',
        'inter',
        aTime(check.interval_sec, 'The interval of health checks'),
        'rise',
        aCount(check.healthy_after, 1, 100, 'healthy_after'),
        'fall',
        aCount(check.unhealthy_after, 1, 100, 'unhealthy_after'),
      ],
    ],
  },
  {
    head: ['defaults', targetsDefaults, 'from', checkedDefaults],
    lines: [
      ['retry-on', 'conn-failure', 'empty-response'],
      ['acl', 'repeatable', 'method', 'GET', 'HEAD', 'OPTIONS'],
      ['http-request', 'disable-l7-retry', 'unless', 'repeatable'],
    ],
  },
]

function backend(
  kind: Kind,
  route: RouteSpec,
  { lines, servers }: { lines: Words[]; servers: Server[] },
): Backend {
  const idle = longestStreams(route)
  const answers = kind === 'http' ? aTime(route.request_timeout_sec, 'The request timeout') : idle
  return {
    servers,
    section: {
      head: [
        'backend',
        backendName(kind, route.id),
        'from',
        kind === 'tcp' ? checkedDefaults : targetsDefaults,
      ],
      route: route.id,
      lines: [
        ...(kind === 'tcp' ? [['mode', 'tcp']] : []),
        ['timeout', 'server', answers],
        ['timeout', 'tunnel', idle],
        ...lines,
        ...servers.map(serverLine),
      ],
    },
  }
}

const redirectBackend = (route: RouteSpec, { status, url }: { status: number; url: string }): Backend => ({
  servers: [],
  section: {
    head: ['backend', backendName('http', route.id), 'from', baseDefaults],
    route: route.id,
    lines: [
      ...requestHeaderLines(route),
      ['http-request', 'return', 'status', aRedirectStatus(status), 'hdr', 'location', aRedirectUrl(url)],
      ...responseHeaderLines(route),
    ],
  },
})

export const hasHttps = ({ listeners }: LoadBalancerSpec): boolean =>
  listeners.some(({ protocol }) => protocol === 'https')

/** To the first listener for HTTPS: its frontend has noted the port. */
export const toHttps: Words = [
  'http-request',
  'redirect',
  'code',
  308,
  'location',
  'https://%[var(txn.host)]%[var(txn.https_port)]%[pathq]',
]

const isPlain: Words = ['!{', 'ssl_fc', '}']

/** Also a request without a host name, which has no URL to redirect to, does not pass. */
const secureLines = (spec: LoadBalancerSpec, route: RouteSpec): Words[] =>
  route.redirect_to_https && hasHttps(spec)
    ? [
        [...toHttps, 'if', ...isPlain, '{', 'var(txn.host)', '-m', 'found', '}'],
        ['http-request', 'deny', 'deny_status', 400, 'if', ...isPlain],
      ]
    : []

const isStream: Words = ['{', 'req.hdr(accept)', '-m', 'sub', 'text/event-stream', '}']

function httpLines(spec: LoadBalancerSpec, route: RouteSpec): Words[] {
  return [
    ...secureLines(spec, route),
    ['http-request', 'set-timeout', 'server', longestStreams(route), 'if', ...isStream],
    ...requestHeaderLines(route),
    ...rewriteLines(route),
    ...responseHeaderLines(route),
    ...(route.sticky ? [cookieLine(spec, route)] : []),
  ]
}

const requestHeaderLines = (route: RouteSpec): Words[] => [
  ...route.request_headers_remove.map((name): Words => ['http-request', 'del-header', aHeader(name)]),
  ...Object.entries(route.request_headers_add).map(
    ([name, value]): Words => ['http-request', 'set-header', aHeader(name), asFormat(aHeaderValue(value))],
  ),
]

/** `http-after-response` also sees the answers that HAProxy itself gives. */
const responseHeaderLines = (route: RouteSpec): Words[] => [
  ...route.response_headers_remove.map((name): Words => ['http-after-response', 'del-header', aHeader(name)]),
  ...Object.entries(route.response_headers_add).map(([name, value]): Words => {
    const header = aHeader(name)
    // A target's cookies are not replaced by one of the route.
    const verb = header === 'set-cookie' ? 'add-header' : 'set-header'
    return ['http-after-response', verb, header, asFormat(aHeaderValue(value))]
  }),
]

/** Replaces a prefix by whole segments; an exact path as a whole. */
function rewriteLines({ prefix_rewrite, path_match, path_match_type }: RouteSpec): Words[] {
  if (prefix_rewrite === null) return []
  if (path_match_type === 'regex' && path_match !== null)
    throw new EngineRefused('A regular expression has no prefix to rewrite')
  const to = aPath(prefix_rewrite, 'The rewritten prefix').replace(/\/$/, '')
  const whole: Words = ['http-request', 'set-path', asFormat(to || '/')]
  if (path_match !== null && path_match_type === 'exact') return [whole]
  const from = aPath(path_match ?? '/').replace(/\/$/, '')
  return [
    // The first rule changes the path, so the second asks for what it was.
    ['http-request', 'set-var(txn.was)', 'path'],
    ['acl', 'all', 'var(txn.was)', '-m', 'str', '--', from || '/'],
    ['acl', 'below', 'var(txn.was)', '-m', 'beg', '--', `${from}/`],
    ['http-request', 'replace-path', `^${asRegex(from)}/(.*)$`, `${asFormat(to)}/\\1`, 'if', 'below'],
    [...whole, 'if', 'all'],
  ]
}

/** Each route has a cookie of its own: two routes of one host have different targets. */
function cookieLine(spec: LoadBalancerSpec, route: RouteSpec): Words {
  const isSecure = spec.listeners.every(({ protocol }) => protocol !== 'http')
  const name = `keelson_${digest(route.id, 8)}`
  return [
    'cookie',
    name,
    'insert',
    'indirect',
    'nocache',
    'httponly',
    ...(isSecure ? ['secure'] : []),
  ].concat(['attr', 'SameSite=Lax'])
}

const cookieOf = ({ id }: TargetSpec): string => digest(id, 16)

function checkLines(check: HealthCheckSpec, route: RouteSpec): Words[] {
  if (check.path === null) return []
  const host =
    route.host_match === null || route.host_match.startsWith('*.') ? null : aHostName(route.host_match)
  const status = check.expect_status === null ? '200-399' : aCount(check.expect_status, 100, 599, 'A status')
  return [
    ['option', 'httpchk'],
    [
      'http-check',
      'send',
      'meth',
      'GET',
      'uri',
      aPath(check.path, 'The path of a health check'),
      'ver',
      'HTTP/1.1',
    ].concat(['hdr', 'host', host ?? 'health-check', 'hdr', 'user-agent', 'keelson-health-check']),
    ['http-check', 'expect', 'status', status],
  ]
}

const serversOf = (route: RouteSpec, kind: Kind, optionsOf: (target: TargetSpec) => Words): Server[] =>
  route.targets.map((target) => ({
    backend: backendName(kind, route.id),
    name: serverName(target.id),
    address: anAddress(target.address),
    port: aPort(target.port ?? route.backend_port),
    weight: target.state === 'draining' ? 0 : aCount(target.weight, 0, 256, 'A weight'),
    stopped: target.state === 'stopped',
    options: [
      ...optionsOf(target),
      // A draining target takes no client back, not even one with its cookie.
      ...(route.sticky && kind !== 'tcp' && target.state === 'active' ? ['cookie', cookieOf(target)] : []),
    ],
  }))

function checked(spec: LoadBalancerSpec, route: RouteSpec, place: Place, kind: Kind): Server[] {
  const sni =
    route.backend_tls && route.backend_sni !== null ? ['check-sni', aHostName(route.backend_sni)] : []
  const tls = tlsOptions(spec, route, place, kind)
  return serversOf(route, kind, () => [...tls, 'check', ...sni])
}

/** Servers whose health is that of the owner's. */
function tracking(spec: LoadBalancerSpec, route: RouteSpec, place: Place, kind: Kind, owner: Kind): Server[] {
  const tls = tlsOptions(spec, route, place, kind)
  return serversOf(route, kind, ({ id }) => [
    ...tls,
    'track',
    `${backendName(owner, route.id)}/${serverName(id)}`,
  ])
}

function tlsOptions(spec: LoadBalancerSpec, route: RouteSpec, place: Place, kind: Kind): Words {
  if (!route.backend_tls) return kind === 'grpc' ? ['proto', 'h2'] : []
  const name = route.backend_sni === null ? null : aHostName(route.backend_sni)
  const trusts = route.backend_ca_trust_id
  if (trusts !== null && !spec.ca_trusts.some(({ id }) => id === trusts))
    throw new EngineRefused('The route’s CA trust is unknown')
  const protocols = { http: ['alpn', 'http/1.1'], grpc: ['alpn', 'h2'], tcp: [] }
  return [
    'ssl',
    ...(trusts === null ? ['verify', 'none'] : ['verify', 'required', 'ca-file', caFile(place, trusts)]),
    ...(name === null ? [] : ['sni', `str(${name})`]),
    ...(name === null || trusts === null ? [] : ['verifyhost', name]),
    ...protocols[kind],
  ]
}

/** Lines of a frontend that take the route: conditions under names made of `index`, and the rule itself. */
export function takingLines(route: RouteSpec, index: number): Words[] {
  const { host_match, path_match, path_match_type, method } = route
  const lines: Words[] = []
  const names: string[] = []
  const condition = (letter: string, ...tests: Words[]): void => {
    names.push(`${letter}${index}`)
    for (const test of tests) lines.push(['acl', `${letter}${index}`, ...test])
  }
  if (host_match?.startsWith('*.'))
    condition('h', ['var(txn.host)', '-m', 'end', '--', `.${aHostName(host_match.slice(2))}`])
  else if (host_match !== null) condition('h', ['var(txn.host)', '-m', 'str', '--', aHostName(host_match)])
  if (path_match !== null && path_match_type === 'regex')
    condition('p', ['path', '-m', 'reg', '--', aRegex(path_match)])
  else if (path_match !== null && path_match_type === 'exact')
    condition('p', ['path', '-m', 'str', '--', aPath(path_match)])
  else if (path_match !== null && aPath(path_match) !== '/') condition('p', ...prefixTests(path_match))
  if (method !== null) condition('m', ['method', '-m', 'str', '--', aMethod(method)])
  const taking = route.redirect ? backendName('http', route.id) : `%[var(txn.kind)]-${anId(route.id)}`
  return [...lines, ['use_backend', taking, ...(names.length > 0 ? ['if', ...names] : [])]]
}

/** By whole segments: `/api` is no prefix of `/apis`. */
function prefixTests(path: string): Words[] {
  const below: Words = ['path', '-m', 'beg', '--', path.endsWith('/') ? path : `${path}/`]
  return path.endsWith('/') ? [below] : [['path', '-m', 'str', '--', path], below]
}
