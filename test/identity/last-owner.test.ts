import { describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { removeUser } from '../../models/identity/members.ts'
import { tenantPermissions } from '../../models/identity/roles.ts'
import { User } from '../../models/identity/users.ts'
import type { Answer, Client } from '../support/client.ts'
import { refusing } from '../support/refusals.ts'
import { makeTenant } from '../support/tenants.ts'

const path = '/api/v1/users'
const idOf = async (client: Client): Promise<string> =>
  (await client.get<{ id: string }>('/api/v1/account')).id
const at = async (client: Client): Promise<string> => `${path}/${await idOf(client)}`

describe('the last owner', () => {
  const ways: [string, (by: Client, url: string) => Promise<Answer>][] = [
    ['removed', (by, url) => by.ask('DELETE', url)],
    ['disabled', (by, url) => by.ask('PATCH', url, { disabled: true })],
    ['demoted', (by, url) => by.ask('PATCH', url, { roles: ['viewer'] })],
  ]
  test.each(ways)('cannot be %s, by themselves or while another owner is only invited', async (_, act) => {
    const alone = await makeTenant()
    await alone.owner.ask('POST', path, { email: `${newId()}@example.com`, roles: ['owner'] })
    const url = await at(alone.owner)
    const answer = await refusing(() => alone)(() => act(alone.owner, url))
    expect(answer).toMatchObject({ status: 409, body: { code: 'last_owner' } })
    expect(await alone.owner.ask('GET', path)).toMatchObject({ status: 200 })
  })

  test.each(ways)('stays if two owners have each other %s at the same time', async (_, act) => {
    for (let round = 0; round < 4; round++) {
      const two = await makeTenant()
      const other = await two.user('owner')
      const [first, second] = [await at(two.owner), await at(other)]
      const answers = await Promise.all([act(two.owner, second), act(other, first)])
      expect(answers.filter(({ status }) => status < 300)).toHaveLength(1)
      const left = await User.countDocuments({ tenant_id: two.id, status: 'active', roles: 'owner' })
      expect(left).toBe(1)
    }
  })

  test('stays also if the two requests go to different replicas', async () => {
    for (let round = 0; round < 4; round++) {
      const two = await makeTenant()
      const [first, second] = [await idOf(two.owner), await idOf(await two.user('owner'))]
      // This process acts as the other replica: the two share only the database.
      const other = { tenant_id: two.id, permissions: new Set(tenantPermissions) }
      const ends = await Promise.allSettled([
        two.owner.ask('DELETE', `${path}/${second}`),
        removeUser(other, first),
      ])
      expect(ends).toHaveLength(2)
      expect(await User.countDocuments({ tenant_id: two.id, roles: 'owner' })).toBe(1)
    }
  })
})
