import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import { Problem } from '../../lib/problem.ts'
import { logIn } from '../../models/identity/login.ts'
import { closeSession } from '../../models/identity/sessions.ts'
import { findByEmail } from '../../models/identity/users.ts'
import { audit, type End } from '../audit.ts'
import { Email, Id, originOf, Timestamp, time } from '../fields.ts'
import { anybody, operation, usersOnly } from '../operation.ts'

const loginPath = '/api/v1/auth/login'

const Login = z
  .strictObject({
    token: z.string().describe('Shown once'),
    token_type: z.literal('Bearer'),
    expires_at: Timestamp,
    remember_token: z
      .string()
      .optional()
      .describe('Where `remember` was asked for with a code: spares this browser the code for 30 days'),
    user: z.strictObject({ id: Id, tenant_id: Id, email: z.string(), name: z.string() }),
  })
  .meta({ id: 'Login' })

/** Nobody is known yet when a login begins, so that the router cannot write its event. Without the password. */
async function auditLogin(
  email: string,
  end: End,
  { address, http }: { address: string; http: { request: IncomingMessage; response: ServerResponse } },
): Promise<void> {
  const user = await findByEmail(email).catch(() => null) // of whom nobody knows there is no event
  if (!user) return
  const { _id: actor_id, tenant_id, email: actor_name } = user
  const actor = { tenant_id, actor_id, actor_kind: 'user' as const, actor_name }
  await audit({ actor, operation: { method: 'POST', path: loginPath }, address, ...http }, end)
}

export const sessions = [
  operation({
    method: 'POST',
    path: loginPath,
    permission: anybody('this is where a caller becomes known'),
    summary: 'Log in with e-mail address and password, and a code where an authenticator is enrolled',
    body: z.strictObject({
      email: Email,
      password: z.string().min(1).max(1024),
      otp: z.string().min(1).max(32).optional().describe('Of the authenticator app, or a recovery code'),
      remember_token: z.string().min(1).max(255).optional(),
      remember: z.boolean().optional().describe('Remember this browser'),
    }),
    responses: { 200: Login },
    attempts_per_min: 300, // against load; guesses are counted by the model
    handle: async ({ body, address, http }) => {
      const end = (how: End) => auditLogin(body.email, how, { address, http })
      const loggedIn = await logIn(body, originOf(http.request)).catch((error: unknown) => {
        // Not before the answer: the time it took would tell which addresses are known.
        if (error instanceof Problem)
          http.response.once('finish', () => void end({ status: error.status, problem: error }))
        throw error
      })
      await end({ status: 200 })
      const { token, expires_at, remember_token, user } = loggedIn
      return {
        token,
        token_type: 'Bearer' as const,
        expires_at: time(expires_at),
        ...(remember_token ? { remember_token } : {}),
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
]
