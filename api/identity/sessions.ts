import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import { Unauthenticated } from '../../lib/problem.ts'
import { closeSession, openSession } from '../../models/identity/sessions.ts'
import { findByEmail, findByPassword, type UserDocument } from '../../models/identity/users.ts'
import { audit, type End } from '../audit.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { anybody, operation, usersOnly } from '../operation.ts'

const loginPath = '/api/v1/auth/login'

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

/** Nobody is known yet when a login begins, so that the router cannot write its event. Without the password. */
async function auditLogin(
  { _id, tenant_id, email }: UserDocument,
  end: End,
  { address, http }: { address: string; http: { request: IncomingMessage; response: ServerResponse } },
): Promise<void> {
  const actor = { tenant_id, actor_id: _id, actor_kind: 'user' as const, actor_name: email }
  await audit({ actor, operation: { method: 'POST', path: loginPath }, address, ...http }, end)
}

export const sessions = [
  operation({
    method: 'POST',
    path: loginPath,
    permission: anybody('this is where a caller becomes known'),
    summary: 'Log in with e-mail address and password',
    body: z.strictObject({ email: z.email().max(254), password: z.string().min(1).max(1024) }),
    responses: { 200: Login },
    attempts_per_min: 60,
    handle: async ({ body, address, http }) => {
      const user = await findByPassword(body.email, body.password)
      if (!user) {
        const problem = new Unauthenticated('The address or the password is wrong', 'invalid_credentials')
        const known = await findByEmail(body.email)
        // Not before the answer: the time it took would tell which addresses are known.
        http.response.once('finish', () => {
          if (known) void auditLogin(known, { status: problem.status, problem }, { address, http })
        })
        throw problem
      }
      await auditLogin(user, { status: 200 }, { address, http })
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
