import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { AuditEvent } from '../../models/identity/audit.ts'
import { type OwnApi, startOwnApi } from '../support/own-api.ts'
import { makeTenant } from '../support/tenants.ts'

// An API process with its own settings, on the stack's database.

const origin = 'https://console.example.com'
let api: OwnApi

beforeAll(async () => {
  api = await startOwnApi({
    KEELSON_CORS_ORIGINS: `${origin}, https://other.example.com`,
    KEELSON_TRUSTED_PROXIES: '127.0.0.0/8',
  })
})
afterAll(() => api.stop())

const askFrom = (from: string) => fetch(`${api.url}/api/v1/account`, { headers: { origin: from } })

describe('CORS', () => {
  test('allows a listed origin, and exposes the headers that clients need', async () => {
    const { headers } = await askFrom(origin)
    expect(headers.get('access-control-allow-origin')).toBe(origin)
    expect(headers.get('access-control-expose-headers')).toMatch(/Operation-Location.*X-Request-Id/)
  })

  test('answers a browser’s preflight request without a token', async () => {
    const { status, headers } = await fetch(`${api.url}/api/v1/containers`, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type,idempotency-key',
      },
    })
    expect([status, headers.get('access-control-allow-origin')]).toEqual([204, origin])
    expect(headers.get('access-control-allow-methods')).toContain('POST')
    expect(headers.get('access-control-allow-headers')).toBe('authorization,content-type,idempotency-key')
  })

  test('allows no other origin', async () => {
    expect((await askFrom('https://evil.example.com')).headers.get('access-control-allow-origin')).toBeNull()
  })
})

test('an audited address is the one that a trusted proxy forwards, not one that the client adds', async () => {
  const { owner, id } = await makeTenant()
  const answer = await fetch(`${api.url}/api/v1/containers`, {
    method: 'POST',
    headers: { authorization: `Bearer ${owner.token}`, 'x-forwarded-for': '198.51.100.1, 203.0.113.7' },
  })
  const event = await AuditEvent.findOne({
    tenant_id: id,
    request_id: answer.headers.get('x-request-id'),
  }).lean()
  expect(event?.address).toBe('203.0.113.7')
})
