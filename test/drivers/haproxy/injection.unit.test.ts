import { readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { LoadBalancerHost } from '../../../drivers/haproxy/host.ts'
import type { LoadBalancerSpec, RouteSpec } from '../../../drivers/load-balancers.ts'
import { processStat } from '../../../drivers/system/process-stat.ts'
import { processesWith, run } from '../../../drivers/system/programs.ts'
import { newId } from '../../../lib/ids.ts'
import {
  ask,
  authority,
  balancer,
  balancers,
  portOf,
  route,
  settings,
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

/** What may be in a header's value, and means something to HAProxy or a shell. */
const quotable = ["'", '"', '\\', '${HOME}', '%[env(PATH)]', '%', '#', ' if TRUE', ' || x', '{ }', ' -- x']

const numbers = [Number.NaN, -1, 0, 0.5, 1e9, 65_536, Number.POSITIVE_INFINITY]

/** A route in which any text and number may be what no API lets through, and whether one is. */
function hostileRoute(dice: Dice, { ca_trusts }: LoadBalancerSpec): { made: RouteSpec; isHostile: boolean } {
  let isHostile = false
  const bad = (): string => {
    isHostile = true
    return badText(dice)
  }
  const share = dice.one([0.02, 0.1, 0.3])
  const text = (good: string): string => (dice.chance(share) ? bad() : good)
  const within = (good: string): string => good + (dice.chance(share) ? bad() : '')
  const value = (good: string): string => {
    if (!dice.chance(0.2)) return within(good)
    isHostile = true
    return good + dice.one(quotable)
  }
  const number = (good: number): number => (dice.chance(share / 3) ? dice.one(numbers) : good)
  const optional = <T>(make: () => T): T | null => (dice.chance(0.6) ? make() : null)
  const headers = (): Record<string, string> => ({
    [text('x-a')]: value('v'),
    [within('x-b')]: text('%[src]'),
  })
  const tls = dice.chance(0.5)
  const type = dice.one(['exact', 'prefix', 'regex'] as const)
  const id = newId()
  const made = route({
    id: dice.chance(share / 3) ? bad() : id,
    priority: number(50),
    host_match: optional(() => within(dice.one(['a.test', '*.test']))),
    path_match: within(type === 'regex' ? `^/fuzz/${id}` : `/fuzz/${id}`),
    path_match_type: type,
    method: optional(() => text('GET')),
    prefix_rewrite: type === 'regex' ? null : optional(() => within('/to')),
    redirect: dice.chance(0.3)
      ? { status: number(302), url: within('https://{host}{https_port}{path}') }
      : null,
    redirect_to_https: dice.chance(0.3),
    request_headers_add: headers(),
    request_headers_remove: [text('x-c'), within('x-d')],
    response_headers_add: headers(),
    response_headers_remove: [within('x-e')],
    idle_timeout_sec: number(60),
    request_timeout_sec: number(30),
    backend_port: number(80),
    backend_tls: tls,
    backend_sni: optional(() => within('backend.test')),
    backend_ca_trust_id: tls ? optional(() => text(ca_trusts[0]?.id ?? '')) : null,
    sticky: dice.chance(0.5),
    targets: [
      target({ id: dice.chance(share / 3) ? bad() : newId(), address: text('10.9.0.10') }),
      target({
        port: dice.one([null, number(80)]),
        weight: number(1),
        state: dice.one(['active', 'draining', 'stopped']),
      }),
    ],
  })
  return { made, isHostile }
}

/** Routes that together use everything a route has, with nothing hostile in it. */
function plainRoutes({ ca_trusts }: LoadBalancerSpec): RouteSpec[] {
  const headers = { 'x-a': 'v', 'set-cookie': 'a=b' }
  const all = {
    priority: 50,
    host_match: '*.test',
    method: 'GET',
    prefix_rewrite: '/to',
    request_headers_add: headers,
    request_headers_remove: ['x-c'],
    response_headers_add: headers,
    response_headers_remove: ['x-e'],
    backend_tls: true,
    backend_sni: 'backend.test',
    backend_ca_trust_id: ca_trusts[0]?.id ?? '',
    redirect_to_https: true,
    sticky: true,
  }
  return [
    route({ ...all, path_match: '/prefix' }),
    route({ ...all, path_match: '/exact', path_match_type: 'exact' }),
    route({ ...all, path_match: '^/x', path_match_type: 'regex', prefix_rewrite: null }),
    route({ ...all, path_match: '/redirect', redirect: { status: 302, url: 'https://a.test{path}' } }),
  ]
}

const placeOf = (id: string) => new LoadBalancerHost(settings as never).placeOf(id)

const linesOf = async (id: string): Promise<string[]> =>
  (await readFile(placeOf(id).config, 'utf8')).trimEnd().split('\n')

/** The processor time that its HAProxy has used. */
async function usedMs(id: string): Promise<number> {
  let used = 0
  for (const { pid } of await processesWith(placeOf(id).config)) used += processStat(pid)?.cpuMs ?? 0
  return used
}

/** What a line is: its first word, with the next one where that says more. */
const directiveOf = (line: string): string =>
  /^ *(?:(?:http-request|http-after-response|http-check|timeout|option) )?[a-z0-9._-]+/i.exec(line)?.[0] ??
  line

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

  test('adds no line to the configuration, in whatever fields of a whole route it is', async () => {
    const dice = new Dice(seed)
    const base = balancer({ ca_trusts: [{ id: newId(), pem: authority.cert }] })
    const witness = route({ priority: 1, path_match: '/witness', path_match_type: 'exact' })
    await balancers.apply({ ...base, routes: [witness, ...plainRoutes(base)] })
    const known = new Set((await linesOf(base.id)).map(directiveOf))
    const count = { refused: 0, quoted: 0 }
    for (let round = 0; round < (isLong ? 400 : 12); round++) {
      const hostile = Array.from({ length: 8 }, () => hostileRoute(dice, base))
      const routes = [witness, ...hostile.map(({ made }) => made)]
      const { state, refused } = await balancers.apply({ ...base, routes })
      expect(state).toBe('running')
      const out = new Set(refused.map(({ route_id }) => route_id))
      const inEffect = routes.filter(({ id }) => !out.has(id))
      expect(inEffect).toContain(witness)
      const lines = await linesOf(base.id)
      expect(lines.filter((line) => !known.has(directiveOf(line)))).toEqual([])
      // The sections of these routes, and no others.
      const heads = lines.flatMap((line) => /^backend [rg]-(\S+) /.exec(line)?.[1] ?? [])
      expect(new Set(heads)).toEqual(new Set(inEffect.map(({ id }) => id)))
      await run('haproxy', ['-c', '-f', placeOf(base.id).config])
      expect((await ask(await portOf(base.id), '/witness')).got?.url).toBe('/witness')
      count.refused += out.size
      count.quoted += hostile.filter(({ made, isHostile }) => isHostile && !out.has(made.id)).length
    }
    // Both happen, so neither is proved by there being none.
    expect(Math.min(count.refused, count.quoted)).toBeGreaterThan(0)
    console.log(`${count.refused} hostile routes refused, ${count.quoted} quoted`)
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
    const before = await usedMs(spec.id)
    for (const path of [`/${'a'.repeat(28)}!`, `/${'a'.repeat(5000)}!`])
      expect((await ask(port, path)).status).toBe(200)
    expect((await usedMs(spec.id)) - before).toBeLessThan(1_000)
  })
})
