import { z } from 'zod'
import { Unauthenticated } from '../../lib/problem.ts'
import { closeSession, openSession } from '../../models/identity/sessions.ts'
import { findByPassword } from '../../models/identity/users.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { anybody, operation, usersOnly } from '../operation.ts'

const Account = z
  .strictObject({ id: Id, tenant_id: Id, email: z.string(), permissions: z.array(z.string()) })
  .meta({ id: 'Account' })

const Login = z
  .strictObject({
    token: z.string().describe('Shown once'),
    token_type: z.literal('Bearer'),
    expires_at: Timestamp,
    user: z.strictObject({ id: Id, tenant_id: Id, email: z.string(), name: z.string() }),
  })
  .meta({ id: 'Login' })

export const sessions = [
  operation({
    method: 'POST',
    path: '/api/v1/auth/login',
    permission: anybody('this is where a caller becomes known'),
    summary: 'Log in with e-mail address and password',
    body: z.strictObject({ email: z.email().max(254), password: z.string().min(1).max(1024) }),
    responses: { 200: Login },
    attempts_per_min: 60,
    handle: async ({ body }) => {
      const user = await findByPassword(body.email, body.password)
      if (!user) throw new Unauthenticated('The address or the password is wrong', 'invalid_credentials')
      const { token, expires_at } = await openSession(user)
      return {
        token,
        token_type: 'Bearer' as const,
        expires_at: time(expires_at),
        user: { id: user._id, tenant_id: user.tenant_id, email: user.email, name: user.name },
      }
    },
  }),

  operation({
    method: 'POST',
    path: '/api/v1/auth/logout',
    permission: usersOnly('everybody may end his own session'),
    summary: 'End this session',
    responses: { 204: null },
    handle: async ({ caller }) => closeSession(caller.token),
  }),

  operation({
    method: 'GET',
    path: '/api/v1/account',
    permission: usersOnly('everybody may see who he is'),
    summary: 'Who is calling, and what he may do',
    responses: { 200: Account },
    handle: async ({ caller }) => ({
      id: caller.id,
      tenant_id: caller.tenant_id,
      email: caller.email,
      permissions: [...caller.permissions].toSorted(),
    }),
  }),
]
