import { describe, expect, test } from '@jest/globals'
import { readPasted } from '../../models/connectors/authorizations.ts'
import { catalogue, providerNames, providerOf } from '../../models/connectors/catalogue.ts'
import { headersFor } from '../../models/connectors/credentials.ts'
import { dueAt } from '../../models/connectors/due.ts'

describe('the catalogue', () => {
  test('offers no login of a vendor of models: they forbid it', () => {
    const vendors = providerNames.filter((name) => providerOf(name).serves === 'models')
    expect(vendors).toHaveLength(10)
    for (const name of vendors)
      expect(providerOf(name).kinds.filter((kind) => kind === 'oauth' || kind === 'device')).toEqual([])
  })

  test('puts no key into a URL', () => {
    for (const { health } of Object.values(catalogue)) expect(health ?? '').not.toMatch(/key=|token=/)
  })
})

test.each([
  ['github', 'api_key', null, { authorization: 'Bearer KEY' }],
  ['gitlab', 'api_key', null, { 'private-token': 'KEY' }],
  ['gitlab', 'oauth', null, { authorization: 'Bearer KEY' }],
  ['gitea', 'api_key', null, { authorization: 'token KEY' }],
  ['gitea', 'oauth', null, { authorization: 'Bearer KEY' }],
  ['azure_openai', 'api_key', null, { 'api-key': 'KEY' }],
  ['openai_compatible', 'api_key', 'x-key', { 'x-key': 'KEY' }],
  ['mcp', 'oauth', null, { authorization: 'Bearer KEY' }],
] as const)('a credential of %s by %s goes in its header', (provider, kind, key_header, headers) => {
  expect(headersFor({ provider, kind, key_header }, { token: 'KEY' })).toMatchObject(headers)
})

test.each([
  ['abc', 'abc', null],
  [' abc \n', 'abc', null],
  ['abc#xyz', 'abc', 'xyz'],
  ['https://console.example/connectors/callback?code=a%2Bc&state=xyz', 'a+c', 'xyz'],
  ['https://console.example/connectors/callback?state=xyz&code=abc#top', 'abc', 'xyz'],
  ['console.example/connectors/callback?code=abc&state=xyz', 'abc', 'xyz'],
  ['https://console.example/connectors/callback?error=access_denied&state=xyz', null, 'xyz'],
])('a user may paste %j', (pasted, code, state) => {
  const read = readPasted(pasted)
  expect([read.redirected.get('code'), read.state]).toEqual([code, state])
})

describe('a worker looks at a connector', () => {
  const now = new Date('2026-11-25T12:00:00Z')
  const after = (sec: number): Date => new Date(now.getTime() + sec * 1000)
  test.each([
    ['10 minutes before its token ends', 'active', true, 8 * 3600, 8 * 3600 - 600],
    ['in the last quarter of a short life', 'active', true, 60, 45],
    ['at the end of a token without a refresh token', 'active', false, 3600, 3600],
    ['at once if its token has ended', 'active', true, 0, 0],
    ['after 5 minutes if it is unchecked', 'unchecked', false, null, 300],
    ['never if it is a key that works', 'active', false, null, null],
  ] as const)('%s', (_, status, refreshable, endsIn, due) => {
    const expires_at = endsIn === null ? null : after(endsIn)
    expect(dueAt({ status, refreshable, expires_at }, now)).toEqual(due === null ? null : after(due))
  })
})
