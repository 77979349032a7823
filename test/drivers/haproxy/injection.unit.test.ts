import { expect, test } from '@jest/globals'
import type { LoadBalancerSpec, RouteSpec } from '../../../drivers/load-balancers.ts'
import { newId } from '../../../lib/ids.ts'
import {
  ask,
  authority,
  balancer,
  balancers,
  portOf,
  route,
  target,
  withLoadBalancers,
} from '../../support/load-balancers.ts'
import { isLong } from '../../support/long.ts'
import { Dice } from '../../support/random.ts'
import { seed } from '../../support/sampled.ts'

// Whatever a tenant writes into a string, HAProxy's configuration stays what it was made to be: the route is refused or
// its value is quoted, and everything else goes on.

const pieces = [
  '\n',
  '\r\n',
  '\0',
  "'",
  '"',
  '\\',
  '$HOME',
  '${HOME}',
  '%[env(PATH)]',
  '%',
  '%%',
  '#',
  ' ',
  '\t',
  '{',
  '}',
].concat(
  [
    '}}',
    ' if TRUE',
    ' || ',
    '-f /etc/passwd',
    '--',
    ';',
    ',',
    '/',
    '/a',
    '*.',
    'é',
    '\u2028',
    '(a+)+$',
    '(?{',
    '(*ACCEPT)',
    '\\1',
  ].concat([
    '\n  http-request return status 200 string owned',
    "' 'x",
    '%[req.hdr(host)]',
    'http://',
    '{host}',
    '{path}',
    '~',
    'x'.repeat(3000),
  ]),
)

const badText = (dice: Dice): string =>
  Array.from({ length: 1 + dice.number(3) }, () => dice.one([...pieces, 'a', 'b.test', 'x-a'])).join('')

type Spoil = (route: RouteSpec, text: string, spec: LoadBalancerSpec) => void

/** Every field of a tenant's text. */
const fields: Record<string, Spoil> = {
  host_match: (one, text) => (one.host_match = text),
  wildcard: (one, text) => (one.host_match = `*.${text}`),
  exact: (one, text) => Object.assign(one, { path_match: `/${text}`, path_match_type: 'exact' }),
  prefix: (one, text) => Object.assign(one, { path_match: `/${text}`, prefix_rewrite: '/to' }),
  regex: (one, text) => Object.assign(one, { path_match: text, path_match_type: 'regex' }),
  method: (one, text) => (one.method = text),
  prefix_rewrite: (one, text) => (one.prefix_rewrite = `/${text}`),
  redirect: (one, text) => (one.redirect = { status: 302, url: `/${text}` }),
  request_name: (one, text) => (one.request_headers_add = { [text]: 'v' }),
  request_value: (one, text) => (one.request_headers_add = { 'x-fuzz': text }),
  request_remove: (one, text) => (one.request_headers_remove = [text]),
  response_name: (one, text) => (one.response_headers_add = { [text]: 'v' }),
  response_value: (one, text) => (one.response_headers_add = { 'x-fuzz': text }),
  response_remove: (one, text) => (one.response_headers_remove = [text]),
  backend_sni: (one, text) => Object.assign(one, { backend_tls: true, backend_port: 443, backend_sni: text }),
  backend_ca_trust_id: (one, text) => Object.assign(one, { backend_tls: true, backend_ca_trust_id: text }),
  address: (one, text) => (one.targets = [target({ address: text })]),
  target_id: (one, text) => (one.targets = [target({ id: text })]),
  route_id: (one, text) => (one.id = text),
}

withLoadBalancers('a tenant’s text', () => {
  test('is refused or quoted in every field of a route, and never a part of the configuration', async () => {
    const dice = new Dice(seed)
    const rounds = isLong ? 100 : 3
    const base = balancer({ ca_trusts: [{ id: newId(), pem: authority.cert }] })
    for (let round = 0; round < rounds; round++) {
      const spoiled = Object.values(fields).map((spoil) => {
        const text = badText(dice)
        const one = route({ priority: 50 })
        spoil(one, text, base)
        // It takes no request of the test's, unless it takes what it should not.
        if (one.path_match === null) Object.assign(one, { path_match: '/fuzz' })
        return one
      })
      const witness = route({ priority: 1, path_match: '/witness', path_match_type: 'exact' })
      const spec = { ...base, routes: [...spoiled, witness] }
      const state = await balancers.apply(spec)
      expect(state.state).toBe('running')
      expect(state.refused.map(({ route_id }) => route_id)).not.toContain(witness.id)
      const port = await portOf(spec.id)
      expect((await ask(port, '/witness')).got?.url).toBe('/witness')
      for (const path of ['/other', '/fuzz']) expect((await ask(port, path)).text).not.toContain('owned')
    }
  })

  test('is sent as it is where it is allowed', async () => {
    const values = [`%[env(PATH)] $HOME \${HOME}`, `' "x" \\ # { } || if`, '%% %1 %', '-m str -- x']
    const names = ['x-%[src]', "x-'a'", 'x-$home']
    const headers = Object.fromEntries([
      ...values.map((value, index) => [`x-v${index}`, value]),
      ...names.map((name) => [name.replace(/[[\]()]/g, ''), 'v']),
    ]) as Record<string, string>
    const spec = balancer({
      routes: [route({ request_headers_add: headers, response_headers_add: headers })],
    })
    const state = await balancers.apply(spec)
    expect(state.refused).toEqual([])
    const { got, headers: answered } = await ask(await portOf(spec.id), '/')
    expect(got?.headers).toMatchObject(headers)
    expect(answered).toMatchObject(headers)
  })

  test('as a regular expression takes bounded time', async () => {
    const bombs = [
      '^/(a+)+$',
      '^/(a|aa)+$',
      '^/(.*a){20}$',
      '^/.*.*.*.*.*x$',
      '^/((a*)*)*$',
      `^/(${'a?'.repeat(30)})${'a'.repeat(30)}$`,
    ]
    const spec = balancer({
      routes: [
        ...bombs.map((path_match) => route({ path_match, path_match_type: 'regex' })),
        route({ priority: 900 }),
      ],
    })
    await balancers.apply(spec)
    const port = await portOf(spec.id)
    const begun = performance.now()
    for (const path of [`/${'a'.repeat(28)}!`, `/${'a'.repeat(5000)}!`])
      expect((await ask(port, path)).status).toBe(200)
    expect(performance.now() - begun).toBeLessThan(1_000)
  })
})
