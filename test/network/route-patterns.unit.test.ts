import { describe, expect, test } from '@jest/globals'
import { faultOfHeader, headerValue } from '../../models/network/header-rules.ts'
import { faultOfRegex, hides, type Match } from '../../models/network/route-patterns.ts'

// The matches and headers of routes, as tenants write them.

describe('a regex', () => {
  test.each([
    '/shop/[0-9]+',
    '^/(?:a|b)/x$',
    String.raw`/v\d{1,3}/.*`,
    String.raw`/a\.b`,
    '/[^/]+/[^/]+',
    '/(a|b|c)?/x',
    '/(?:a+)?/x',
    '/[*+]+',
  ])('%s is accepted', (pattern) => {
    expect(faultOfRegex(pattern)).toBeNull()
  })

  test.each([
    ['(a+)+', /group/],
    ['(a*)*b', /group/],
    ['((a?)x){2,}', /group/],
    ['(?:(?:a|aa)+)+$', /group/],
    ['(a|aa)+$', /group/],
    ['(a|a)*b', /group/],
    ['.*.*.*.*x', /3 repetitions/],
    [`${'a?'.repeat(20)}${'a'.repeat(20)}`, /8 optional/],
    ['a{1,1000}', /more than 100/],
    ['a{1000}', /more than 100/],
    [String.raw`(a)\1`, /back references/],
    ['(?=a)b', /look-around/],
    ['(?<!a)b', /look-around/],
    ['(?<name>a)', /look-around/],
    ['(?i)a', /not a regular expression|look-around/],
    ['(a', /not a regular expression/],
    ['a b', /printable/],
    ['a\nb', /printable/],
    ['\u0000', /printable/],
    ['ä', /printable/],
    ['a'.repeat(257), /256/],
  ])('%j is refused', (pattern, reason) => {
    expect(faultOfRegex(pattern)).toMatch(reason)
  })
})

describe('a route', () => {
  const any: Match = {
    priority: 100,
    host_match: null,
    listener_port: null,
    path_match: null,
    path_match_type: 'prefix',
    method: null,
  }
  const route = (over: Partial<Match>): Match => ({ ...any, ...over })

  test.each([
    ['an equal one', {}, {}],
    ['the same one that comes later', { priority: 1 }, {}],
    ['one host, if it matches any', { priority: 1 }, { host_match: 'a.example' }],
    ['a host below its wildcard', { priority: 1, host_match: '*.example' }, { host_match: 'a.example' }],
    ['a longer prefix', { priority: 1, path_match: '/a' }, { path_match: '/a/b' }],
    [
      'a path below its prefix',
      { priority: 1, path_match: '/a' },
      { path_match: '/a/b', path_match_type: 'exact' as const },
    ],
    ['any path, if its prefix is /', { priority: 1, path_match: '/' }, {}],
    ['one method, if it matches any', { priority: 1 }, { method: 'GET' }],
    [
      'an equal regex',
      { priority: 1, path_match: '/a+', path_match_type: 'regex' as const },
      { path_match: '/a+', path_match_type: 'regex' as const },
    ],
  ])('hides %s', (_, first, second) => {
    expect(hides(route(first), route(second))).toBe(true)
    const isEqual = JSON.stringify(route(first)) === JSON.stringify(route(second))
    expect(hides(route(second), route(first))).toBe(isEqual)
  })

  test.each([
    ['a more specific one of its priority', {}, { host_match: 'a.example' }],
    ['one that comes first', {}, { priority: 1 }],
    ['one of another host', { priority: 1, host_match: 'a.example' }, { host_match: 'b.example' }],
    ['the domain of its wildcard', { priority: 1, host_match: '*.example' }, { host_match: 'example' }],
    ['a path that only begins alike', { priority: 1, path_match: '/a' }, { path_match: '/ab' }],
    [
      'a path that its regex may not match',
      { priority: 1, path_match: '/a.*', path_match_type: 'regex' as const },
      { path_match: '/ab' },
    ],
    ['other methods', { priority: 1, method: 'GET' }, {}],
  ])('does not hide %s', (_, first, second) => {
    expect(hides(route(first), route(second))).toBe(false)
  })
})

describe('a header', () => {
  test.each(['x-tenant', 'Authorization', 'Cache-Control', 'X_y!'])('%s may be added', (name) => {
    expect(faultOfHeader(name, 'request')).toBeNull()
  })

  test.each(['x tenant', 'x:y', 'x\r\ny', '', 'ä', 'Transfer-Encoding', 'content-length', 'Host'])(
    '%j is refused',
    (name) => {
      expect(faultOfHeader(name, 'request')).not.toBeNull()
    },
  )

  test.each(['Forwarded', 'X-Forwarded-For', 'x-request-id'])('%s is the load balancer’s own', (name) => {
    expect(faultOfHeader(name, 'request')).toBe('is set by the load balancer')
    expect(faultOfHeader(name, 'response')).toBeNull()
  })

  test.each(['a\r\nb', 'a\0b', ' a', 'a ', 'ä', ''])('never has the value %j', (value) => {
    expect(headerValue.test(value)).toBe(false)
  })
})
