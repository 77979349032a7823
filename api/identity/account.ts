import { renderSVG } from 'uqr'
import { z } from 'zod'
import { InvalidInput, NotFound } from '../../lib/problem.ts'
import { changePassword, dropAuthenticator } from '../../models/identity/accounts.ts'
import { confirmAuthenticator, enrolAuthenticator, isEnrolled } from '../../models/identity/authenticators.ts'
import { Browser, type BrowserDocument, forgetBrowser } from '../../models/identity/browsers.ts'
import { findUser } from '../../models/identity/members.ts'
import { closeSessionNamed, Session, type SessionDocument } from '../../models/identity/sessions.ts'
import type { UserDocument } from '../../models/identity/users.ts'
import { byId, Id, NewPassword, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation, type UserCaller, usersOnly } from '../operation.ts'

// The operations on the caller's own account.

const Account = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    email: z.string(),
    name: z.string(),
    roles: z.array(z.string()),
    permissions: z.array(z.string()),
    authenticator: z.boolean().describe('Whether a login needs an authenticator code'),
  })
  .meta({ id: 'Account' })

const BrowserView = z
  .strictObject({
    id: Id,
    address: z.string(),
    user_agent: z.string(),
    created_at: Timestamp,
    last_used_at: Timestamp,
    expires_at: Timestamp,
  })
  .meta({ id: 'Browser' })

const toBrowserView = (browser: BrowserDocument): z.output<typeof BrowserView> => ({
  id: browser._id,
  address: browser.address,
  user_agent: browser.user_agent,
  created_at: time(browser.created_at),
  last_used_at: time(browser.last_used_at),
  expires_at: time(browser.expires_at),
})

const SessionView = z
  .strictObject({
    id: Id,
    address: z.string().describe('Address and user agent of the login'),
    user_agent: z.string(),
    created_at: Timestamp,
    expires_at: Timestamp,
  })
  .meta({ id: 'Session' })

const toSessionView = (session: SessionDocument): z.output<typeof SessionView> => ({
  id: session.public_id,
  address: session.address,
  user_agent: session.user_agent,
  created_at: time(session.created_at),
  expires_at: time(session.expires_at),
})

const own = usersOnly('every user manages their own account')
const userOf = ({ tenant_id, id }: UserCaller): Promise<UserDocument> => findUser(tenant_id, id)

export const account = [
  operation({
    method: 'GET',
    path: '/api/v1/account',
    permission: usersOnly('every caller can see their own account'),
    summary: 'Get the caller’s own account and permissions',
    responses: { 200: Account },
    handle: async ({ caller }) => {
      const user = await userOf(caller)
      return {
        id: caller.id,
        tenant_id: caller.tenant_id,
        email: user.email,
        name: user.name,
        roles: user.roles,
        permissions: [...caller.permissions].toSorted(),
        authenticator: await isEnrolled(user),
      }
    },
  }),

  operation({
    method: 'POST',
    path: '/api/v1/account/password',
    permission: own,
    summary: 'Change the password, end all other sessions and forget remembered browsers',
    body: z.strictObject({ current_password: z.string().min(1).max(1024), new_password: NewPassword }),
    responses: { 204: null },
    handle: async ({ caller, body, address }) =>
      changePassword(await userOf(caller), body, { address, token: caller.token }),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/account/authenticator',
    permission: own,
    summary: 'Enrol an authenticator app; it is active once a code is confirmed',
    responses: {
      200: z.strictObject({
        secret: z.string().describe('Base32 secret for manual entry; shown once'),
        otpauth_url: z.string(),
        qr_svg: z.string().describe('The URL as a QR code (SVG)'),
      }),
    },
    handle: async ({ caller }) => {
      const enrolled = await enrolAuthenticator(await userOf(caller))
      return { ...enrolled, qr_svg: renderSVG(enrolled.otpauth_url) }
    },
  }),

  operation({
    method: 'POST',
    path: '/api/v1/account/authenticator/confirm',
    permission: own,
    summary: 'Confirm the authenticator app with a code; from then on, logins need a code',
    body: z.strictObject({ otp: z.string().regex(/^\d{6}$/, 'must be six digits') }),
    responses: {
      200: z.strictObject({
        recovery_codes: z.array(z.string()).describe('Recovery codes: shown once, each valid once'),
      }),
    },
    attempts_per_min: 60,
    handle: async ({ caller, body }) => {
      const recovery_codes = await confirmAuthenticator(await userOf(caller), body.otp)
      if (!recovery_codes) {
        throw new InvalidInput(422, [
          { pointer: '/otp', message: 'is not a valid code of the app that was enrolled last' },
        ])
      }
      return { recovery_codes }
    },
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/account/authenticator',
    permission: own,
    summary: 'Remove the authenticator, with the password or a code',
    body: z.union([
      z.strictObject({ password: z.string().min(1).max(1024) }),
      z.strictObject({ otp: z.string().min(1).max(32) }),
    ]),
    responses: { 204: null },
    handle: async ({ caller, body, address }) =>
      dropAuthenticator(await userOf(caller), body, { address, token: caller.token }),
  }),

  list({
    path: '/api/v1/account/browsers',
    permission: own,
    summary: 'List the remembered browsers, on which logins need no code',
    model: Browser,
    view: BrowserView,
    toView: toBrowserView,
    scope: ({ tenant_id, id }) => ({ tenant_id, user_id: id }),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/account/browsers/{id}',
    permission: own,
    summary: 'Forget a remembered browser',
    params: byId,
    responses: { 204: null },
    handle: ({ caller: { tenant_id, id }, params }) => forgetBrowser({ _id: id, tenant_id }, params.id),
  }),

  list({
    path: '/api/v1/account/sessions',
    permission: own,
    summary: 'List your sessions',
    model: Session,
    view: SessionView,
    toView: toSessionView,
    stored: { id: 'public_id' },
    scope: ({ tenant_id, id }) => ({ tenant_id, user_id: id, expires_at: { $gt: new Date() } }),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/account/sessions/{id}',
    permission: own,
    summary: 'End a session',
    params: byId,
    responses: { 204: null },
    handle: async ({ caller, params }) => {
      if (!(await closeSessionNamed(caller.id, params.id))) throw new NotFound('session')
    },
  }),
]
