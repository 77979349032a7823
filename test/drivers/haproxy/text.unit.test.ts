import { expect, test } from '@jest/globals'
import { inOrder } from '../../../drivers/haproxy/order.ts'
import { quoted, writeSections } from '../../../drivers/haproxy/text.ts'
import { aRedirectUrl, aRegex } from '../../../drivers/haproxy/values.ts'
import type { RouteSpec } from '../../../drivers/load-balancers.ts'

test('a word stays one word, whatever it holds', () => {
  expect(quoted('plain-word')).toBe('plain-word')
  expect(quoted('')).toBe("''")
  expect(quoted(`it's $HOME "x" \\ #`)).toBe(`'it'\\''s $HOME "x" \\ #'`)
  for (const text of ['a\nb', 'a\rb', 'a\0b', 'é', '\u2028'])
    expect(() => quoted(text)).toThrow('not allowed')
})

test('a line tells whose it is', () => {
  const own = ['acl', 'x']
  const sections = [
    { head: ['frontend', 'f'], lines: [['mode', 'http'], own] },
    { head: ['backend', 'b'], lines: [['mode', 'http']], route: 'two' },
  ]
  const { text, routeAt } = writeSections(sections, new Map([[own, 'one']]))
  expect(text).toBe('frontend f\n  mode http\n  acl x\nbackend b\n  mode http\n')
  expect([1, 2, 3, 4, 5].map(routeAt)).toEqual([undefined, undefined, 'one', 'two', 'two'])
})

test('the URL of a redirect has no format of a tenant, and leads to no other host by its path', () => {
  expect(aRedirectUrl('https://a.test/100%25{path}')).toBe('https://a.test/100%%25%[pathq]')
  for (const url of [
    '{path}',
    '/{path}',
    '//a.test/',
    'javascript:x',
    'https://a b/',
    'https://a.test/%[src]\n',
    'https://',
    '',
  ])
    expect(() => aRedirectUrl(url)).toThrow('redirect')
})

test('a regular expression has a limit that it cannot lift', () => {
  expect(aRegex('^/a$')).toMatch(/^\(\*LIMIT_MATCH=\d+\)\(\?:\^\/a\$\)$/)
  for (const source of [
    '',
    'a)(b',
    '(*LIMIT_MATCH=1)',
    '(?i)a',
    '(?=a)',
    '(a)\\1',
    'a{1000}',
    '\\Qa',
    'a\nb',
    'é',
    'x'.repeat(513),
  ])
    expect(() => aRegex(source)).toThrow()
})

const of = (id: string, over: Partial<RouteSpec>) =>
  ({
    id,
    priority: 1,
    host_match: null,
    listener_port: null,
    path_match: null,
    path_match_type: 'prefix',
    method: null,
    ...over,
  }) as RouteSpec

test('routes are in order of priority, host, path and method', () => {
  const wanted = [
    of('z', { priority: 0 }),
    of('y', { host_match: 'a.test' }),
    of('x', { host_match: '*.long.test' }),
    of('w', { host_match: '*.test', path_match: '/p', path_match_type: 'exact' }),
    of('v', { host_match: '*.test' }),
    of('u', { path_match: '/p', path_match_type: 'exact' }),
    of('t', { path_match: '/pp' }),
    of('s', { path_match: '/p' }),
    of('r', { path_match: '^/long-regex', path_match_type: 'regex' }),
    of('q', { method: 'GET' }),
    of('a', {}),
    of('b', {}),
  ]
  expect(inOrder(wanted.toReversed()).map(({ id }) => id)).toEqual(wanted.map(({ id }) => id))
})
