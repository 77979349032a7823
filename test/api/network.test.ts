import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { AuditEvent } from '../../models/identity/audit.ts'
import { eventually } from '../support/eventually.ts'
import { layout, stackSettings } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'

// An api of its own, with other settings, on the stack's database.

const port = layout.apiPort + 70
const url = `http://127.0.0.1:${port}`
const origin = 'https://console.example.com'
let api: ChildProcess

beforeAll(async () => {
  const env = {
    ...stackSettings(),
    KEELSON_API_PORT: String(port),
    KEELSON_CORS_ORIGINS: `${origin}, https://other.example.com`,
    KEELSON_TRUSTED_PROXIES: '127.0.0.0/8',
  }
  api = spawn(process.execPath, ['api/main.ts'], { env, cwd: layout.repository, stdio: 'ignore' })
  await eventually(async () => (await fetch(`${url}/healthz`)).ok, { withinMs: 30_000 })
})

afterAll(async () => {
  api.kill('SIGTERM')
  if (api.exitCode === null) await once(api, 'exit')
})

const askFrom = (from: string) => fetch(`${url}/api/v1/account`, { headers: { origin: from } })

describe('CORS', () => {
  test('lets a listed origin in, and shows it the headers that clients need', async () => {
    const { headers } = await askFrom(origin)
    expect(headers.get('access-control-allow-origin')).toBe(origin)
    expect(headers.get('access-control-expose-headers')).toMatch(/Operation-Location.*X-Request-Id/)
  })

  test('lets no other in', async () => {
    expect((await askFrom('https://evil.example.com')).headers.get('access-control-allow-origin')).toBeNull()
  })
})

test('the address is the one that a trusted proxy forwards, not what the client adds', async () => {
  const { owner, id } = await makeTenant()
  const answer = await fetch(`${url}/api/v1/containers`, {
    method: 'POST',
    headers: { authorization: `Bearer ${owner.token}`, 'x-forwarded-for': '198.51.100.1, 203.0.113.7' },
  })
  const event = await AuditEvent.findOne({
    tenant_id: id,
    request_id: answer.headers.get('x-request-id'),
  }).lean()
  expect(event?.address).toBe('203.0.113.7')
})
