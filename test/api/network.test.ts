import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { AuditEvent } from '../../models/identity/audit.ts'
import { type OwnApi, startOwnApi } from '../support/own-api.ts'
import { makeTenant } from '../support/tenants.ts'

// An api of its own, with other settings, on the stack's database.

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
  test('lets a listed origin in, and shows it the headers that clients need', async () => {
    const { headers } = await askFrom(origin)
    expect(headers.get('access-control-allow-origin')).toBe(origin)
    expect(headers.get('access-control-expose-headers')).toMatch(/Operation-Location.*X-Request-Id/)
  })

  test('answers a browser that asks first, before it sends a token', async () => {
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

  test('lets no other in', async () => {
    expect((await askFrom('https://evil.example.com')).headers.get('access-control-allow-origin')).toBeNull()
  })
})

test('the address is the one that a trusted proxy forwards, not what the client adds', async () => {
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
