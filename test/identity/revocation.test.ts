import { beforeAll, describe, expect, test } from '@jest/globals'
import { setTimeout as delay } from 'node:timers/promises'
import { newId } from '../../lib/ids.ts'
import { customRolesNamed, permissionsOf } from '../../models/identity/roles.ts'
import { openSession } from '../../models/identity/session-tokens.ts'
import { Session } from '../../models/identity/sessions.ts'
import { User, type UserDocument } from '../../models/identity/users.ts'
import { makeMachine, replicas, tokenOf } from '../support/api-clients.ts'
import { ask, type Client, type Json } from '../support/client.ts'
import { Dice } from '../support/random.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

const readable = '/api/v1/containers'

/** Sends a change through the replica of this index. */
async function change(replica: number, method: string, path: string, body?: Json): Promise<void> {
  const { status, body: answer } = await ask(method, `${replicas()[replica]}${path}`, {
    token: tenant.owner.token,
    body,
  })
  if (status >= 300) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(answer)}`)
}

/** The status that each replica answers to a request that needs `containers:read`. */
const answers = (token: string): Promise<number[]> =>
  Promise.all(
    replicas().map(async (replica) => (await ask('GET', `${replica}${readable}`, { token })).status),
  )

async function makeRole(...permissions: string[]): Promise<string> {
  const name = `role-${newId().slice(-12)}`
  await change(0, 'POST', '/api/v1/roles', { name, permissions })
  return name
}

const urlOf = async (client: Client): Promise<string> =>
  `/api/v1/users/${(await client.get<{ id: string }>('/api/v1/account')).id}`

interface Revoked {
  token: string
  revoke: (replica: number) => Promise<void>
  /** 403 where the caller is still known. */
  status: 401 | 403
}

async function userWith(role: string): Promise<{ token: string; url: string; client: Client }> {
  const client = await tenant.user(role)
  return { token: client.token, url: await urlOf(client), client }
}

async function machine(): Promise<{ token: string; url: string }> {
  const made = await makeMachine(tenant.owner, ['containers:read', 'disks:read'])
  return { token: await tokenOf(made), url: `/api/v1/api-clients/${made.id}` }
}

const ways: [string, () => Promise<Revoked>][] = [
  [
    'a role taken from a user',
    async () => {
      const { token, url } = await userWith('viewer')
      const roles = [await makeRole('disks:read')]
      return { token, status: 403, revoke: (replica) => change(replica, 'PATCH', url, { roles }) }
    },
  ],
  [
    'a permission revoked from a role',
    async () => {
      const role = await makeRole('containers:read', 'disks:read')
      const { token } = await userWith(role)
      const permission = `/api/v1/roles/${role}/permissions/containers:read`
      return { token, status: 403, revoke: (replica) => change(replica, 'DELETE', permission) }
    },
  ],
  [
    'a role changed as a whole',
    async () => {
      const role = await makeRole('containers:read')
      const { token } = await userWith(role)
      const permissions = ['disks:read']
      return {
        token,
        status: 403,
        revoke: (replica) => change(replica, 'PUT', `/api/v1/roles/${role}`, { permissions }),
      }
    },
  ],
  [
    'a disabled user',
    async () => {
      const { token, url } = await userWith('viewer')
      return { token, status: 401, revoke: (replica) => change(replica, 'PATCH', url, { disabled: true }) }
    },
  ],
  [
    'a deleted user',
    async () => {
      const { token, url } = await userWith('viewer')
      return { token, status: 401, revoke: (replica) => change(replica, 'DELETE', url) }
    },
  ],
  [
    'a session that its user ended',
    async () => {
      const { token, client } = await userWith('viewer')
      const { items } = await client.get<{ items: { id: string }[] }>('/api/v1/account/sessions')
      const path = `/api/v1/account/sessions/${items[0]?.id}`
      return {
        token,
        status: 401,
        async revoke(replica) {
          const { status } = await client.ask('DELETE', `${replicas()[replica]}${path}`)
          expect(status).toBe(204)
        },
      }
    },
  ],
  [
    'a scope taken from a client',
    async () => {
      const { token, url } = await machine()
      const scopes = ['disks:read']
      return { token, status: 403, revoke: (replica) => change(replica, 'PATCH', url, { scopes }) }
    },
  ],
  [
    'the revoked tokens of a client',
    async () => {
      const { token, url } = await machine()
      return { token, status: 401, revoke: (replica) => change(replica, 'POST', `${url}/revoke-tokens`) }
    },
  ],
  [
    'a client that has expired',
    async () => {
      const { token, url } = await machine()
      const expires_at = new Date(Date.now() - 1000).toISOString()
      return { token, status: 401, revoke: (replica) => change(replica, 'PATCH', url, { expires_at }) }
    },
  ],
  [
    'a deleted client',
    async () => {
      const { token, url } = await machine()
      return { token, status: 401, revoke: (replica) => change(replica, 'DELETE', url) }
    },
  ],
]

describe('every replica refuses on the next request after a revocation:', () => {
  test.each(ways)('%s', async (_, make) => {
    for (const replica of [0, 1]) {
      const { token, status, revoke } = await make()
      expect(await answers(token)).toEqual([200, 200])
      await revoke(replica)
      expect(await answers(token)).toEqual([status, status])
    }
  })
})

test('every replica grants new permissions of a role or a user on the next request', async () => {
  const role = await makeRole('disks:read')
  const { token, url } = await userWith(role)
  expect(await answers(token)).toEqual([403, 403])
  await change(0, 'POST', `/api/v1/roles/${role}/permissions`, { permission: 'containers:read' })
  expect(await answers(token)).toEqual([200, 200])
  await change(1, 'PATCH', url, { roles: [await makeRole()] })
  expect(await answers(token)).toEqual([403, 403])
  await change(0, 'PATCH', url, { roles: [role] })
  expect(await answers(token)).toEqual([200, 200])
})

const sorted = (permissions: ReadonlySet<string>): string[] => [...permissions].toSorted()

const rounds = 60
const loginsAtOnce = 4
const seed = Date.now()

const makePerson = async (...roles: string[]): Promise<UserDocument> => {
  const client = await tenant.user(...roles)
  const { id } = await client.get<{ id: string }>('/api/v1/account')
  const user = await User.findOne({ _id: id, tenant_id: tenant.id }).lean()
  if (!user) throw new Error('the user is gone')
  return user
}
/** The permissions of the user's sessions, and those of the user's and the roles' records, both sorted. */
const permitted = async ({ _id }: UserDocument): Promise<{ sessions: string[][]; records: string[] }> => {
  const user = await User.findOne({ _id, tenant_id: tenant.id }).lean()
  const sessions = await Session.find({ user_id: _id }).lean()
  const roles = user?.status === 'active' ? user.roles : []
  const own = await customRolesNamed(tenant.id, roles)
  return {
    sessions: sessions.map((session) => sorted(permissionsOf(session.roles, session.own_roles))),
    records: sorted(permissionsOf(roles, own)),
  }
}
const agree = async (user: UserDocument): Promise<number> => {
  const { sessions, records } = await permitted(user)
  expect([seed, ...sessions]).toEqual([seed, ...sessions.map(() => records)])
  return sessions.length
}

describe('a login during a change', () => {
  const dice = new Dice(seed)
  // This process acts as a third replica. It skips the password check, so logins overlap with the change more often.
  const logIn = async (user: UserDocument): Promise<boolean> => {
    await delay(dice.number(8))
    return openSession(user).then(
      () => true,
      () => false,
    )
  }
  const race = async (user: UserDocument, act: () => Promise<void>): Promise<boolean[]> => {
    const [opened] = await Promise.all([
      Promise.all(Array.from({ length: loginsAtOnce }, () => logIn(user))),
      act(),
    ])
    return opened
  }

  test('gets the permissions of a changed role', async () => {
    const role = await makeRole('containers:read')
    const other = await makeRole('vpcs:read')
    const user = await makePerson(role, other, 'viewer')
    for (let round = 0; round < rounds; round++) {
      const permissions = round % 2 ? ['containers:read'] : ['disks:create', 'containers:create']
      const opened = await race(user, () =>
        change(round % 2, 'PUT', `/api/v1/roles/${dice.one([role, other])}`, { permissions }),
      )
      expect(opened).toEqual(opened.map(() => true))
      await agree(user)
    }
    expect(await agree(user)).toBe(1 + rounds * loginsAtOnce)
  })

  test('gets the permissions of the user’s new roles', async () => {
    const role = await makeRole('containers:create')
    const user = await makePerson('viewer')
    for (let round = 0; round < rounds; round++) {
      const roles = dice.one([['viewer'], [role], ['developer', role], []])
      await race(user, () => change(round % 2, 'PATCH', `/api/v1/users/${user._id}`, { roles }))
      await agree(user)
    }
    expect(await agree(user)).toBe(1 + rounds * loginsAtOnce)
  })

  test('leaves no session to a disabled or deleted user', async () => {
    for (let round = 0; round < rounds / 2; round++) {
      const user = await makePerson('viewer')
      const url = `/api/v1/users/${user._id}`
      await race(user, () =>
        round % 2 ? change(0, 'DELETE', url) : change(1, 'PATCH', url, { disabled: true }),
      )
      expect(await Session.countDocuments({ user_id: user._id })).toBe(0)
    }
  })

  test('leaves no deleted role in a session', async () => {
    const user = await makePerson('viewer')
    for (let round = 0; round < rounds / 4; round++) {
      const role = await makeRole('disks:create')
      const url = `/api/v1/users/${user._id}`
      await change(0, 'PATCH', url, { roles: [role] })
      await race(user, async () => {
        await change(1, 'PATCH', url, { roles: ['viewer'] })
        await change(0, 'DELETE', `/api/v1/roles/${role}`)
      })
      await agree(user)
    }
  })
})
