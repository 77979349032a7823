import { z } from 'zod'
import { isKnownDevice, logIn } from '../../models/identity/login.ts'
import { closeSession } from '../../models/identity/sessions.ts'
import { auditing, userWith } from '../audit.ts'
import { Email, Id, originOf, Timestamp, time } from '../fields.ts'
import { anybody, operation, usersOnly } from '../operation.ts'

const loginPath = '/api/v1/auth/login'

const Login = z
  .strictObject({
    token: z.string().describe('The access token, shown once'),
    token_type: z.literal('Bearer'),
    expires_at: Timestamp,
    remember_token: z
      .string()
      .optional()
      .describe('Returned if `remember` was set; lets this browser skip the code for 30 days'),
    user: z.strictObject({ id: Id, tenant_id: Id, email: z.string(), name: z.string() }),
  })
  .meta({ id: 'Login' })

export const sessions = [
  operation({
    method: 'POST',
    path: loginPath,
    permission: anybody('logging in is how a caller gets a token'),
    summary: 'Log in with an e-mail address, a password and, if an authenticator is enrolled, a code',
    body: z.strictObject({
      email: Email,
      password: z.string().min(1).max(1024),
      otp: z.string().min(1).max(32).optional().describe('Code of the authenticator app, or a recovery code'),
      remember_token: z.string().min(1).max(255).optional(),
      remember: z.boolean().optional().describe('Remember this browser'),
    }),
    responses: { 200: Login },
    attempts_per_min: 300, // limits load; the model counts guesses
    spares: isKnownDevice,
    handle: async ({ body, address, http }) => {
      const { token, expires_at, remember_token, user } = await auditing(
        { operation: { method: 'POST', path: loginPath }, address, http },
        () => userWith(body.email),
        () => logIn(body, originOf(http.request)),
      )
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
    permission: usersOnly('every caller can end their own session'),
    summary: 'End this session',
    responses: { 204: null },
    handle: async ({ caller }) => closeSession(caller.token),
  }),
]
