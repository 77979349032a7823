import { beforeAll, expect, test } from '@jest/globals'
import { Operation } from '../../models/operations.ts'
import { makeMachine, replicas, tokenOf } from '../support/api-clients.ts'
import { ask, Client, shell } from '../support/client.ts'
import { endlessOperation } from '../support/endless.ts'
import { eventually } from '../support/eventually.ts'
import { followLog } from '../support/follow.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Who loses the right to read keeps no stream that was opened before, on whatever replica the right is taken away.

let tenant: TestTenant
let logs: string
beforeAll(async () => {
  tenant = await makeTenant()
  const { id } = await tenant.containers.make(shell('while :; do echo line; sleep 0.2; done'))
  logs = `/api/v1/containers/${id}/logs`
})

interface Reader {
  client: Client
  revoke: () => Promise<unknown>
  status: 401 | 403
}
const onOther = (method: string, path: string, token: string, body?: unknown) =>
  ask(method, `${replicas()[1]}${path}`, { token, body })

async function loggedOut(): Promise<Reader> {
  const client = await tenant.user('viewer')
  return { client, status: 401, revoke: () => onOther('POST', '/api/v1/auth/logout', client.token) }
}
async function demoted(): Promise<Reader> {
  const client = await tenant.user('viewer')
  const { id } = await client.get<{ id: string }>('/api/v1/account')
  const revoke = () => onOther('PATCH', `/api/v1/users/${id}`, tenant.owner.token, { roles: [] })
  return { client, status: 403, revoke }
}
async function deletedClient(): Promise<Reader> {
  const machine = await makeMachine(tenant.owner, ['containers:read', 'operations:read'])
  const client = new Client(await tokenOf(machine))
  const revoke = () => onOther('DELETE', `/api/v1/api-clients/${machine.id}`, tenant.owner.token)
  return { client, status: 401, revoke }
}
const ways: [string, () => Promise<Reader>][] = [
  ['a session that was ended', loggedOut],
  ['a role that was taken away', demoted],
  ['an API client that was deleted', deletedClient],
]

test('a log that is followed and a wait for an operation end when their reader loses the right to them', async () => {
  const id = await endlessOperation(tenant.id)
  const stays = await followLog<{ line: string }>(await tenant.user('viewer'), `${logs}?follow=true&lines=0`)
  const ends = ways.map(async ([name, make]) => {
    const { client, revoke, status } = await make()
    const log = await followLog<{ line: string }>(client, `${logs}?follow=true`)
    const waiting = client.ask('GET', `/api/v1/operations/${id}?wait=60`)
    await eventually(() => log.lines.length > 0)
    await revoke()
    await Promise.race([log.ended, eventually(() => false, { withinMs: 30_000 })])
    expect([name, (await waiting).status]).toEqual([name, status])
  })
  await Promise.all(ends)
  const before = stays.lines.length
  await eventually(() => stays.lines.length > before)
  await stays.stop()
  await Operation.deleteOne({ _id: id, tenant_id: tenant.id })
})
