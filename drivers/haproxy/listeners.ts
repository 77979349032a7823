import { EngineRefused } from '../errors.ts'
import type { ListenerSpec, LoadBalancerSpec, LoadBalancerState, RouteSpec } from '../load-balancers.ts'
import { httpLog, tcpLog } from './access-log.ts'
import type { Place } from './places.ts'
import { endsTls, takes, takesBytes } from './protocols.ts'
import { backendName, hasHttps, isForTcp, kinds, takingLines, toHttps } from './routes.ts'
import { baseDefaults, type Section, type Words } from './text.ts'
import { aKeyAuthorization, aPort, aToken } from './values.ts'

// Listeners as frontends. Each listens in the load balancer's namespace, and on the host's address in the host's.

export type BoundListener = LoadBalancerState['ports'][number]

/** The host's address and the name of its namespace. */
export interface Outside {
  address: string
  namespace: string
}

export interface Entrance {
  spec: LoadBalancerSpec
  place: Place
  outside: Outside
  ports: BoundListener[]
  /** The file of each listener's certificates, by its port. */
  lists: Map<number, string>
  /** In order, and only accepted ones. */
  routes: RouteSpec[]
}

export const noRoute = 'none'
const inside = 1
const outsideId = 2

/** The frontend of a listener. `owners` gets the lines that are a route's. */
export function frontendOf(entrance: Entrance, listener: ListenerSpec, owners: Map<Words, string>): Section {
  const { spec, ports, outside, lists } = entrance
  const port = aPort(listener.port)
  const bound = ports.find((one) => one.port === port)
  if (!bound) throw new EngineRefused(`The listener ${port} has no host port`)
  const tls = tlsWords(listener, lists)
  const lines: Words[] = [
    ['mode', takesBytes(listener) ? 'tcp' : 'http'],
    ['bind', `:${port}`, 'id', inside, ...tls],
    [
      'bind',
      `${outside.address}:${bound.host_port}`,
      'namespace',
      outside.namespace,
      'id',
      outsideId,
      ...tls,
    ],
  ]
  const its = { ...entrance, routes: entrance.routes.filter((route) => takes(route, listener)) }
  const more = takesBytes(listener)
    ? tcpLines(its)
    : [...httpLines(spec), ...protocolLines(entrance, listener), ...routeLines(its, owners)]
  return { head: ['frontend', `l-${port}`, 'from', baseDefaults], lines: [...lines, ...more] }
}

function tlsWords({ protocol, port }: ListenerSpec, lists: Map<number, string>): Words {
  if (!endsTls({ protocol })) return []
  const list = lists.get(port)
  if (list === undefined) throw new EngineRefused('It has no certificate that can be used')
  return ['ssl', 'crt-list', list, ...(protocol === 'https' ? ['alpn', 'h2,http/1.1'] : [])]
}

/** The first route that asks for nothing of HTTP takes all connections. */
function tcpLines({ routes }: Entrance): Words[] {
  const route = routes.find(isForTcp)
  return [
    ['log-format', tcpLog],
    ...(route
      ? [
          ['timeout', 'client', `${route.idle_timeout_sec}s`],
          ['default_backend', backendName('tcp', route.id)],
        ]
      : [['tcp-request', 'connection', 'reject']]),
  ]
}

/** What every request meets before the routes: it is checked, and noted for the access log. */
const httpLines = ({ challenges }: LoadBalancerSpec): Words[] => [
  ['log-format', httpLog],
  ['option', 'http-restrict-req-hdr-names', 'delete'],
  ['acl', 'has-host', 'req.hdr(host)', '-m', 'found'],
  ['acl', 'several-hosts', 'req.hdr_cnt(host)', 'gt', 1],
  [
    'acl',
    'good-host',
    'req.fhdr(host)',
    '-m',
    'reg',
    '-i',
    '--',
    String.raw`^[a-z0-9._-]{1,253}(:[0-9]{1,5})?$`,
  ],
  ['acl', 'good-path', 'path', '-m', 'beg', '/'],
  ['http-request', 'set-var(txn.path)', 'path,bytes(0,2048),json(utf8s)'],
  ['http-request', 'deny', 'deny_status', 400, 'if', 'has-host', '!good-host'],
  ['http-request', 'set-var(txn.host)', 'req.fhdr(host),field(1,:),lower', 'if', 'has-host'],
  ['http-request', 'deny', 'deny_status', 400, 'if', 'several-hosts'],
  ['http-request', 'deny', 'deny_status', 400, 'if', '!good-path'],
  ...challenges.flatMap(({ token, key_authorization }, index): Words[] => [
    ['acl', `c${index}`, 'path', '-m', 'str', '--', `/.well-known/acme-challenge/${aToken(token)}`],
    [
      'http-request',
      'return',
      'status',
      200,
      'content-type',
      'text/plain',
      'string',
      aKeyAuthorization(key_authorization),
    ].concat(['if', `c${index}`]),
  ]),
]

/** What a client says of itself is dropped; what the load balancer knows takes its place. */
function protocolLines(entrance: Entrance, { protocol, redirect_to_https }: ListenerSpec): Words[] {
  const forwarded = `for=%[src];proto=${protocol}`
  return [
    ...portLines(entrance),
    ...(protocol === 'http' && redirect_to_https ? secureLines(entrance) : []),
    ['http-request', 'del-header', '^(forwarded|x-forwarded-.*|x-real-ip|x-request-id)$', '-m', 'reg'],
    ['http-request', 'add-header', 'x-forwarded-for', '%[src]'],
    ['http-request', 'add-header', 'x-forwarded-proto', protocol],
    ['http-request', 'add-header', 'x-forwarded-port', '%[dst_port]'],
    ['http-request', 'add-header', 'x-forwarded-host', '%[req.fhdr(host)]', 'if', 'has-host'],
    ['http-request', 'add-header', 'forwarded', forwarded, 'unless', 'has-host'],
    ['http-request', 'add-header', 'forwarded', `${forwarded};host="%[req.fhdr(host)]"`, 'if', 'has-host'],
    ['http-request', 'add-header', 'x-request-id', '%[unique-id]'],
    // An absolute URI of HTTP/1: the target gets the path alone.
    ['acl', 'path-alone', 'url', '-m', 'beg', '/'],
    ['acl', 'http1', 'req.ver', '-m', 'beg', '1.'],
    ['http-request', 'set-uri', '%[pathq]', 'if', '!path-alone', 'http1'],
    ['acl', 'grpc', 'req.hdr(content-type)', '-m', 'beg', 'application/grpc'],
    ['http-request', 'set-var(txn.kind)', `str(${kinds.http})`],
    ['http-request', 'set-var(txn.kind)', `str(${kinds.grpc})`, 'if', 'grpc'],
  ]
}

const ownPorts = { http: 80, https: 443 }

/** Notes the ports that redirects name, as the client can reach them. */
function portLines({ spec, ports, routes }: Entrance): Words[] {
  const isAsked =
    spec.listeners.some((listener) => listener.redirect_to_https) ||
    routes.some(({ redirect, redirect_to_https }) => redirect_to_https || redirect?.url.includes('_port}'))
  if (!isAsked) return []
  const lines = (['http', 'https'] as const).flatMap((protocol) => {
    const listener = spec.listeners.find((one) => one.protocol === protocol)
    const bound = ports.find(({ port }) => port === listener?.port)
    const note = (port: number | undefined, from: string): Words[] =>
      port === undefined || port === ownPorts[protocol]
        ? []
        : [['http-request', `set-var(txn.${protocol}_port)`, `str(:${port})`, 'if', from]]
    return [...note(bound?.port, 'inside'), ...note(bound?.host_port, 'outside')]
  })
  return [['acl', 'inside', 'so_id', inside], ['acl', 'outside', 'so_id', outsideId], ...lines]
}

function secureLines({ spec }: Entrance): Words[] {
  if (!hasHttps(spec)) throw new EngineRefused('There is no listener for HTTPS to redirect to')
  return [
    // There is no URL to redirect to, and nothing may pass.
    ['http-request', 'deny', 'deny_status', 400, 'unless', 'has-host'],
    toHttps,
  ]
}

function routeLines({ routes }: Entrance, owners: Map<Words, string>): Words[] {
  const lines = routes.flatMap((route, index) => {
    const taking = takingLines(route, index)
    for (const words of taking) owners.set(words, route.id)
    return taking
  })
  return [...lines, ['default_backend', noRoute]]
}
