import { describe, expect, test } from '@jest/globals'
import { makeRedactor } from '../../lib/redact.ts'
import { secretInArguments, secretInHeader, secretInUrl } from '../../models/tools/plain-secrets.ts'

const github = `ghp_${'a1B2'.repeat(9)}`

describe('a URL with a secret is found:', () => {
  test.each([
    'https://user:password@api.example/',
    'https://token@api.example/',
    'https://api.example/?api_key=abc',
    'https://api.example/?key=abc',
    'https://api.example/?x=1&accessToken=abc',
    'https://api.example/?X-Amz-Signature=abc',
    'https://api.example/?password=abc',
    `https://api.example/${github}/mcp`,
    `https://api.example/?q=${encodeURIComponent(github)}`,
  ])('%s', (url) => {
    const found = secretInUrl(url)
    expect(found).toEqual(expect.any(String))
    for (const secret of ['abc', github]) expect(found).not.toContain(secret)
  })

  test.each([
    'https://api.example/mcp',
    'https://api.example/users/{id}?q={q}&api_key={key}',
    'https://api.example/?sort_by=key&page=2&monkey=abc&author=me',
    'https://api.example/%',
  ])('%s has none', (url) => {
    expect(secretInUrl(url)).toBeNull()
  })
})

test('a header with a secret is found, by its name or its value', () => {
  for (const [name, value] of [
    ['Authorization', 'x'],
    ['X-Api-Key', 'x'],
    ['cookie', 'a=b'],
    ['X-Auth-Token', 'x'],
    ['X-Other', 'Bearer abc'],
    ['X-Other', github],
  ] as const)
    expect([name, secretInHeader(name, value)]).toEqual([name, expect.any(String)])
  for (const [name, value] of [
    ['Accept', 'application/json'],
    ['X-Tenant', 'acme'],
    ['Idempotency-Key', 'abc'],
  ] as const)
    expect([name, secretInHeader(name, value)]).toEqual([name, null])
})

test('an argument with a secret is found', () => {
  for (const args of [['--api-key=abc'], ['--token', 'abc'], ['x', github], ['https://a:b@c.example/']])
    expect([args, secretInArguments(args)]).toEqual([args, expect.any(String)])
  for (const args of [['-y', '@scope/server', '/data'], ['--token', '--verbose'], ['--port=80']])
    expect([args, secretInArguments(args)]).toEqual([args, null])
})

test('a secret is taken out of all that others say, in the forms in which it travels', () => {
  const secret = 'user:pass "word"/+'
  const redact = makeRedactor([secret, '', 'short'])
  const said = {
    [secret]: [secret, { deep: `before ${secret} after` }],
    base64: Buffer.from(secret).toString('base64'),
    url: `https://x.example/?q=${encodeURIComponent(secret)}`,
    json: JSON.stringify(secret),
    other: ['short', 1, null, true],
  }
  expect(redact(said)).toEqual({
    '[secret]': ['[secret]', { deep: 'before [secret] after' }],
    base64: '[secret]',
    url: 'https://x.example/?q=[secret]',
    json: '"[secret]"',
    other: ['short', 1, null, true],
  })
})
