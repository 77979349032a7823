import { expect, test } from '@jest/globals'
import type { RouteSpec } from '../../../drivers/load-balancers.ts'
import {
  type Answer,
  applied,
  ask,
  type Asking,
  authority,
  balancer,
  portOf,
  route,
  target,
  targetAddresses,
  withLoadBalancers,
} from '../../support/load-balancers.ts'

// Every field of a route, by requests through a real HAProxy to a real target. HAProxy needs root, and nothing of the
// platform: hence `unit`.

interface Case {
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
): Case[] =>
  requests.map(([path, asking, to]) => ({
    name: `${name}: ${asking.method ?? 'GET'} ${asking.host ?? ''}${path} goes to ${to}`,
    routes: Object.entries(routes).map(([key, fields]) => ({ ...by(key), ...fields })),
    path,
    asking,
    expected: taken,
    to,
  }))

const cases: Case[] = [
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
    ([path_match, prefix_rewrite, path, to]): Case => ({
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
    ([status, to, path, location]): Case => ({
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

const hasHosts = ([first]: Case[]): boolean => first?.routes.some((one) => one.host_match) ?? false

async function check(port: number, group: Case[], host?: string): Promise<void> {
  for (const { name, path = '/', asking, expected, to } of group) {
    const is = expected(await ask(port, path, { ...(host ? { host } : {}), ...asking }))
    const [wanted] = JSON.parse(JSON.stringify([to]).replaceAll('{asked}', `${host}`)) as unknown[]
    expect([name, JSON.parse(JSON.stringify([is]))[0]]).toEqual([name, wanted])
  }
}

withLoadBalancers('a route', () => {
  // Each case has a host name of its own, so that one load balancer serves them all.
  const groups = [...Map.groupBy(cases, ({ routes }) => JSON.stringify(routes)).values()]
  const shared = groups.filter((group) => !hasHosts(group))
  const hostOf = (group: Case[]): string => `g${shared.indexOf(group)}.test`

  test('does what each of its fields says', async () => {
    const routes = shared.flatMap((group) =>
      (group[0]?.routes ?? []).map((fields) => route({ host_match: hostOf(group), ...fields })),
    )
    const spec = balancer({ routes })
    const state = await applied(spec)
    expect(state.refused).toEqual([])
    const port = await portOf(spec.id)
    for (const group of shared) await check(port, group, hostOf(group))
  })

  test.each(groups.filter(hasHosts).map((group) => [group[0]?.name.split(':')[0], group] as const))(
    'is taken by %s',
    async (_, group) => {
      const spec = balancer({ routes: (group[0]?.routes ?? []).map((fields) => route(fields)) })
      const state = await applied(spec)
      expect(state.refused).toEqual([])
      await check(await portOf(spec.id), group)
    },
  )

  test('checks a target’s certificate against the trusted authority and the name', async () => {
    const trust = { id: 'trust', pem: authority.cert }
    const to = { backend_port: 443, backend_tls: true, backend_ca_trust_id: 'trust' }
    const spec = balancer({
      ca_trusts: [trust],
      routes: [
        route({ ...to, path_match: '/good', backend_sni: 'backend.test' }),
        route({ ...to, path_match: '/wrong', backend_sni: 'other.test' }),
      ],
    })
    await applied(spec)
    const port = await portOf(spec.id)
    expect((await ask(port, '/good')).got?.sni).toBe('backend.test')
    expect((await ask(port, '/wrong')).status).toBe(503)
  })

  test('keeps a client at its target by a cookie, until the target drains', async () => {
    const targets = targetAddresses.map((address) => target({ address }))
    const spec = balancer({ routes: [route({ sticky: true, targets })] })
    await applied(spec)
    const port = await portOf(spec.id)
    const first = await ask(port, '/')
    const cookie = String(first.headers['set-cookie']).split(';')[0] ?? ''
    expect(String(first.headers['set-cookie'])).toMatch(
      /^keelson_\w{8}=\w{16}; path=\/; HttpOnly; SameSite=Lax$/,
    )
    for (let again = 0; again < 6; again++) {
      const { got } = await ask(port, '/', { headers: { cookie } })
      expect(got?.address).toBe(first.got?.address)
      expect(got?.headers['cookie']).toBeUndefined()
    }
    const drained = targets.map((one) =>
      one.address === first.got?.address ? { ...one, state: 'draining' as const } : one,
    )
    await applied({ ...spec, routes: spec.routes.map((one) => ({ ...one, targets: drained })) })
    expect((await ask(port, '/', { headers: { cookie } })).got?.address).not.toBe(first.got?.address)
  })

  test('shares requests by weight: 90 to 10', async () => {
    const targets = [target({ weight: 90 }), target({ address: '10.9.0.11', weight: 10 })]
    const spec = balancer({ routes: [route({ targets })] })
    await applied(spec)
    const port = await portOf(spec.id)
    const counts = new Map<string, number>()
    for (let sent = 0; sent < 500; sent++) {
      const address = (await ask(port, '/')).got?.address ?? ''
      counts.set(address, (counts.get(address) ?? 0) + 1)
    }
    expect(Math.abs((counts.get('10.9.0.10') ?? 0) - 450)).toBeLessThanOrEqual(5)
  })
})
