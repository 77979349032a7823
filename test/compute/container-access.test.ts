import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { type Client, type Json, sleeper } from '../support/client.ts'
import { makeTenant } from '../support/tenants.ts'

// To whom a container is there, and who may do what with it.

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
  '$method …$verb: for another tenant there is no such container',
  async ({ method, verb, body }) => {
    const answer = await stranger.ask(method, `${path}/${id}${verb}`, body)
    const unknown = await stranger.ask(method, `${path}/${newId()}${verb}`, body)
    expect(answer).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect({ ...answer.body, request_id: '' }).toEqual({ ...unknown.body, request_id: '' })
  },
)

test.each(calls.filter(({ method }) => method !== 'GET'))(
  '$method …$verb: a viewer may not',
  async ({ method, verb, body }) => {
    const answer = await viewer.ask(method, `${path}/${id}${verb}`, body)
    expect(answer).toMatchObject({ status: 403, body: { code: 'permission_denied' } })
  },
)

test('a viewer sees, and creates nothing', async () => {
  expect(await viewer.get(`${path}/${id}`)).toMatchObject({ id, status: 'running', operation_id: null })
  expect(await viewer.ask('POST', path, sleeper())).toMatchObject({ status: 403 })
})
