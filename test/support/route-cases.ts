import { expect } from '@jest/globals'
import type { RouteSpec } from '../../drivers/load-balancers.ts'
import { type Answer, ask, type Asking, target } from './load-balancers.ts'

// Every field of a route: what requests find that has it. The targets are those of test/support/lb-backend.ts at 10.9.0.10,
// 10.9.0.11 and 10.9.0.12. For the driver alone, and for the platform with targets on two hosts.

export interface RouteCase {
  name: string
  routes: Partial<RouteSpec>[]
  path?: string
  asking?: Asking
  expected: (answer: Answer) => unknown
  to: unknown
}

const by = (name: string): Partial<RouteSpec> => ({ response_headers_add: { 'x-by': name } })
const taken = ({ headers, status }: Answer): unknown => (status === 404 ? null : headers['x-by'])
const url = ({ got }: Answer): unknown => got?.url

/** Which of the named routes takes a request. */
const takes = (
  name: string,
  routes: Record<string, Partial<RouteSpec>>,
  requests: [path: string, asking: Asking, by: string | null][],
): RouteCase[] =>
  requests.map(([path, asking, to]) => ({
    name: `${name}: ${asking.method ?? 'GET'} ${asking.host ?? ''}${path} goes to ${to}`,
    routes: Object.entries(routes).map(([key, fields]) => ({ ...by(key), ...fields })),
    path,
    asking,
    expected: taken,
    to,
  }))

const cases: RouteCase[] = [
  ...takes('host_match', { exact: { host_match: 'a.test' }, wild: { host_match: '*.b.test' } }, [
    ['/', { host: 'a.test' }, 'exact'],
    ['/', { host: 'A.Test:8080' }, 'exact'],
    ['/', { host: 'x.a.test' }, null],
    ['/', { host: 'x.b.test' }, 'wild'],
    ['/', { host: 'x.y.b.test' }, 'wild'],
    ['/', { host: 'b.test' }, null],
    ['/', { host: 'xb.test' }, null],
  ]),
  ...takes(
    'path_match',
    {
      exact: { path_match: '/exact', path_match_type: 'exact' },
      prefix: { path_match: '/api' },
      below: { path_match: '/below/' },
      regex: { path_match: '^/users/[0-9]+$', path_match_type: 'regex' },
      braces: { path_match: String.raw`/x{2,3}\}$`, path_match_type: 'regex' },
    },
    [
      ['/exact', {}, 'exact'],
      ['/exact?q=1', {}, 'exact'],
      ['/exact/', {}, null],
      ['/api', {}, 'prefix'],
      ['/api/x', {}, 'prefix'],
      ['/apis', {}, null],
      ['/below', {}, null],
      ['/below/x', {}, 'below'],
      ['/users/42', {}, 'regex'],
      ['/users/x', {}, null],
      ['/xx}', {}, 'braces'],
    ],
  ),
  ...takes('method', { post: { method: 'POST' }, get: { method: 'GET' } }, [
    ['/', { method: 'POST' }, 'post'],
    ['/', {}, 'get'],
    ['/', { method: 'PUT' }, null],
  ]),
  ...takes(
    'priority, then what is more specific',
    {
      last: { priority: 200 },
      first: { priority: 1, path_match: '/first' },
      host: { host_match: 'a.test' },
      wild: { host_match: '*.test' },
      longwild: { host_match: '*.b.test' },
      short: { path_match: '/p' },
      long: { path_match: '/p/q' },
      exact: { path_match: '/p/q', path_match_type: 'exact' },
      method: { path_match: '/p', method: 'POST' },
    },
    [
      ['/first', { host: 'a.test' }, 'first'],
      ['/p', { host: 'a.test' }, 'host'],
      ['/p', { host: 'x.test' }, 'wild'],
      ['/p', { host: 'x.b.test' }, 'longwild'],
      ['/p/x', { host: 'other' }, 'short'],
      ['/p/q/r', { host: 'other' }, 'long'],
      ['/p/q', { host: 'other' }, 'exact'],
      ['/p/x', { host: 'other', method: 'POST' }, 'method'],
      ['/none', { host: 'other' }, 'last'],
    ],
  ),
  ...(
    [
      ['/api', '/v1', '/api/x?q=1', '/v1/x?q=1'],
      ['/api', '/v1', '/api', '/v1'],
      ['/api', '/', '/api/x', '/x'],
      ['/api', '/', '/api', '/'],
      ['/api', '/api/v2', '/api/x', '/api/v2/x'],
      ['/api', '/api/v2', '/api', '/api/v2'],
      ['/a.b', '/c%25d', '/a.b/x', '/c%25d/x'],
      [null, '/all', '/x', '/all/x'],
    ] as const
  ).map(
    ([path_match, prefix_rewrite, path, to]): RouteCase => ({
      name: `prefix_rewrite ${prefix_rewrite}: ${path} becomes ${to}`,
      routes: [{ path_match, prefix_rewrite }],
      path,
      expected: url,
      to,
    }),
  ),
  {
    name: 'prefix_rewrite replaces an exact path as a whole',
    routes: [{ path_match: '/old', path_match_type: 'exact', prefix_rewrite: '/new' }],
    path: '/old?q=1',
    expected: url,
    to: '/new?q=1',
  },
  ...(
    [
      [301, 'https://new.test{path}', '/a?b=c', 'https://new.test/a?b=c'],
      [302, 'https://{host}/fixed', '/a', 'https://{asked}/fixed'],
      [307, '/moved{path}', '/a', '/moved/a'],
      [308, 'https://new.test/100%25', '/', 'https://new.test/100%25'],
      [300, 'http://x.test/', '/', 'http://x.test/'],
      [305, 'http://x.test/', '/', 'http://x.test/'],
    ] as const
  ).map(
    ([status, to, path, location]): RouteCase => ({
      name: `redirect ${status} to ${to}`,
      routes: [{ redirect: { status, url: to }, targets: [] }],
      path,
      expected: (answer) => [answer.status, answer.headers['location'], answer.got],
      to: [status, location, undefined],
    }),
  ),
  {
    name: 'request_headers_add and request_headers_remove',
    routes: [
      {
        request_headers_add: { 'X-Stage': `50% "it's" $HOME %[src] \\ # end`, 'x-new': 'a  b' },
        request_headers_remove: ['Cookie', 'x-drop'],
      },
    ],
    asking: { headers: { cookie: 'a=b', 'x-drop': '1', 'x-stage': 'forged', 'x-kept': '1' } },
    expected: ({ got }) =>
      ['x-stage', 'x-new', 'cookie', 'x-drop', 'x-kept'].map((name) => got?.headers[name]),
    to: [`50% "it's" $HOME %[src] \\ # end`, 'a  b', undefined, undefined, '1'],
  },
  {
    name: 'response_headers_add and response_headers_remove',
    routes: [
      { response_headers_add: { 'X-Frame-Options': 'DENY 100%' }, response_headers_remove: ['x-target'] },
    ],
    expected: ({ headers }) => [headers['x-frame-options'], headers['x-target']],
    to: ['DENY 100%', undefined],
  },
  {
    name: 'request_timeout_sec: a slow answer is 504',
    routes: [{ request_timeout_sec: 1 }],
    path: '/?wait=3000',
    expected: ({ status }) => status,
    to: 504,
  },
  {
    name: 'idle_timeout_sec: a stream of events may be silent for longer than an answer',
    routes: [{ request_timeout_sec: 1, idle_timeout_sec: 10 }],
    path: '/?events=2',
    asking: { headers: { accept: 'text/event-stream' } },
    expected: ({ text }) => text,
    to: 'data: 1\n\ndata: 2\n\n',
  },
  {
    name: 'targets by weight: one of weight 0 gets nothing',
    routes: [{ targets: [target({ weight: 0 }), target({ address: '10.9.0.11' })] }],
    expected: ({ got }) => got?.address,
    to: '10.9.0.11',
  },
  {
    name: 'targets by port: that of the target, before that of the route',
    routes: [{ backend_port: 81, targets: [target({ port: 80 })] }],
    expected: ({ got }) => got?.address,
    to: '10.9.0.10',
  },
  {
    name: 'targets by state: neither draining nor stopped ones get requests',
    routes: [
      {
        targets: [
          target({ state: 'draining' }),
          target({ address: '10.9.0.11', state: 'stopped' }),
          target({ address: '10.9.0.12' }),
        ],
      },
    ],
    expected: ({ got }) => got?.address,
    to: '10.9.0.12',
  },
  {
    name: 'backend_tls and backend_sni, without a check of the certificate',
    routes: [{ backend_port: 443, backend_tls: true, backend_sni: 'any.test' }],
    expected: ({ got }) => got?.sni,
    to: 'any.test',
  },
]

/** The cases with the same routes, which are to be made once. */
const groups = [...Map.groupBy(cases, ({ routes }) => JSON.stringify(routes)).values()]
const isOwn = ([first]: RouteCase[]): boolean => first?.routes.some((one) => one.host_match) ?? false

/** Groups that match host names, each for a load balancer of its own. */
export const ownGroups = groups.filter(isOwn).map((group) => ({ name: group[0]?.name.split(':')[0], group }))
/** Groups that share a load balancer, in which each has a host name. */
export const sharedGroups = groups
  .filter((group) => !isOwn(group))
  .map((group, index) => ({ host: `g${index}.test`, group }))

/** Sends the requests of a group to a load balancer. */
export async function checkRoutes(
  to: number | { address: string; port: number },
  group: RouteCase[],
  host?: string,
): Promise<void> {
  for (const { name, path = '/', asking, expected, to: wantedOf } of group) {
    const is = expected(await ask(to, path, { ...(host ? { host } : {}), ...asking }))
    const [wanted] = JSON.parse(JSON.stringify([wantedOf]).replaceAll('{asked}', `${host}`)) as unknown[]
    expect([name, JSON.parse(JSON.stringify([is]))[0]]).toEqual([name, wanted])
  }
}
