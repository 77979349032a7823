import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { type Client, type Json, sleeper } from '../support/client.ts'
import { makeTenant } from '../support/tenants.ts'

// Which tenants see a container, and which users may act on it.

const calls: { method: string; verb: string; body?: Json }[] = [
  { method: 'GET', verb: '' },
  { method: 'PUT', verb: '', body: { cpu_cores: 0.2 } },
  { method: 'DELETE', verb: '' },
  { method: 'POST', verb: '/start' },
  { method: 'POST', verb: '/stop' },
  { method: 'GET', verb: '/logs' },
  { method: 'GET', verb: '/metrics' },
  { method: 'GET', verb: '/activity' },
]
const path = '/api/v1/containers'
let id: string
let stranger: Client
let viewer: Client
beforeAll(async () => {
  const tenant = await makeTenant()
  stranger = (await makeTenant()).owner
  viewer = await tenant.user('viewer')
  ;({ id } = await tenant.containers.make())
})

test.each(calls)(
  '$method …$verb: another tenant gets 404, as for an unknown container',
  async ({ method, verb, body }) => {
    const answer = await stranger.ask(method, `${path}/${id}${verb}`, body)
    const unknown = await stranger.ask(method, `${path}/${newId()}${verb}`, body)
    expect(answer).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect({ ...answer.body, request_id: '' }).toEqual({ ...unknown.body, request_id: '' })
  },
)

test.each(calls.filter(({ method }) => method !== 'GET'))(
  '$method …$verb: a viewer gets 403',
  async ({ method, verb, body }) => {
    const answer = await viewer.ask(method, `${path}/${id}${verb}`, body)
    expect(answer).toMatchObject({ status: 403, body: { code: 'permission_denied' } })
  },
)

test('a viewer can read containers and cannot create one', async () => {
  expect(await viewer.get(`${path}/${id}`)).toMatchObject({ id, status: 'running', operation_id: null })
  expect(await viewer.ask('POST', path, sleeper())).toMatchObject({ status: 403 })
})
