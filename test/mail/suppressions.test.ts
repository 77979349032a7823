import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { AuditEvent } from '../../models/identity/audit.ts'
import { suppress } from '../../models/mail/suppressions.ts'
import type { Client, Json } from '../support/client.ts'
import { mailsTo } from '../support/mailbox.ts'
import { makeTenant } from '../support/tenants.ts'

// Operators see the suppressed addresses, and can lift a suppression.

const path = '/api/v1/platform/mail-suppressions'
let operator: Client
let operators: string
let owner: Client
beforeAll(async () => {
  const tenant = await makeTenant()
  operators = tenant.id
  operator = await tenant.user('operator')
  owner = (await makeTenant()).owner
})

const suppressed = async (): Promise<{ address: string; id: string }> => {
  const address = `${newId()}@example.com`
  await suppress([address], { reason: 'bounce', detail: 'NoEmail' })
  const { items } = await operator.get<{ items: { id: string }[] }>(`${path}?address=${address}`)
  return { address, id: items[0]?.id ?? '' }
}

test('an operator finds a suppressed address, with its cause and time', async () => {
  const { address, id } = await suppressed()
  const { items, total } = await operator.get<{ items: Json[]; total: number }>(`${path}?address=${address}`)
  const time = expect.stringMatching(/^\d{4}-.*Z$/)
  const shown = { id, address, reason: 'bounce', detail: 'NoEmail', created_at: time, updated_at: time }
  expect({ items, total }).toEqual({ items: [shown], total: 1 })
})

test('lifting a suppression lets mail go there again, and is audited', async () => {
  const { address, id } = await suppressed()
  const body = { email: address, name: 'Ada', roles: ['viewer'] }
  const { body: user } = await owner.ask('POST', '/api/v1/users', body)
  expect(await mailsTo(address)).toEqual([])

  expect(await operator.ask('DELETE', `${path}/${id}`)).toMatchObject({ status: 204 })
  await owner.ask('POST', `/api/v1/users/${String(user['id'])}/invite`)
  expect(await mailsTo(address)).toHaveLength(1)

  const event = await AuditEvent.findOne({ tenant_id: operators, resource_id: id }).lean()
  expect(event).toMatchObject({ resource_kind: 'mail_suppression', outcome: 'succeeded' })
})

test('lifting a suppression that is lifted already, or never was, gets 404', async () => {
  const { id } = await suppressed()
  await operator.ask('DELETE', `${path}/${id}`)
  for (const gone of [id, newId(), 'nonsense'])
    expect(await operator.ask('DELETE', `${path}/${gone}`)).toMatchObject({
      status: 404,
      body: { code: 'not_found' },
    })
})

test('a tenant’s owner is refused', async () => {
  const { id } = await suppressed()
  expect(await owner.ask('GET', path)).toMatchObject({ status: 403, body: { code: 'permission_denied' } })
  expect(await owner.ask('DELETE', `${path}/${id}`)).toMatchObject({ status: 403 })
})
