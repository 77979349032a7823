import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { acceptInvitation, requestReset, resetPassword } from '../../models/identity/accounts.ts'
import { changeUser, findUser, inviteAgain, inviteUser, removeUser } from '../../models/identity/members.ts'
import { User, type UserDocument, userStatuses } from '../../models/identity/users.ts'
import { byId, Email, Id, Name, NewPassword, PlainText, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { anybody, operation } from '../operation.ts'

const UserView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    email: z.string(),
    name: z.string(),
    roles: z.array(z.string()),
    status: z.enum(userStatuses),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'User' })

const toView = (user: UserDocument): z.output<typeof UserView> => ({
  id: user._id,
  tenant_id: user.tenant_id,
  email: user.email,
  name: user.name,
  roles: user.roles,
  status: user.status,
  created_at: time(user.created_at),
  updated_at: time(user.updated_at),
})

const FullName = PlainText.max(200)
const Roles = z.array(Name.describe('The name of a role')).max(50)
const WithToken = z.strictObject({ token: z.string().min(1).max(255), password: NewPassword })
const mailed = anybody('the mailed token is the credential')

// Longer than the work for a known address, so that the response time does not show whether it is known.
const resetAnswerMs = 400

export const users = [
  list({
    path: '/api/v1/users',
    permission: 'users:read',
    summary: 'List users',
    model: User,
    view: UserView,
    toView,
    scope: (caller) => ({ tenant_id: caller.tenant_id }),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/users',
    permission: 'users:create',
    summary: 'Invite a user by e-mail; the caller must hold every permission of the roles',
    body: z.strictObject({ email: Email, name: FullName.default(''), roles: Roles.default([]) }),
    responses: { 201: UserView },
    handle: async ({ caller, body }) => {
      const user = await inviteUser(caller, body)
      return { location: `/api/v1/users/${user._id}`, body: toView(user) }
    },
  }),

  operation({
    method: 'GET',
    path: '/api/v1/users/{id}',
    permission: 'users:read',
    summary: 'Get a user',
    params: byId,
    responses: { 200: UserView },
    handle: async ({ caller, params }) => toView(await findUser(caller.tenant_id, params.id)),
  }),

  operation({
    method: 'PATCH',
    path: '/api/v1/users/{id}',
    permission: 'users:update',
    summary: 'Update, enable or disable a user; the change takes effect on their next request',
    params: byId,
    body: z.strictObject({
      name: FullName.optional(),
      roles: Roles.optional(),
      disabled: z.boolean().optional(),
    }),
    responses: { 200: UserView },
    handle: async ({ caller, params, body }) => toView(await changeUser(caller, params.id, body)),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/users/{id}',
    permission: 'users:delete',
    summary: 'Delete a user and end their sessions; API clients stay',
    params: byId,
    responses: { 204: null },
    handle: async ({ caller, params }) => removeUser(caller, params.id),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/users/{id}/invite',
    permission: 'users:create',
    summary: 'Send the invitation again; the previous one stops working',
    params: byId,
    responses: { 200: UserView },
    handle: async ({ caller, params }) => toView(await inviteAgain(caller, params.id)),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/auth/accept-invitation',
    permission: mailed,
    summary: 'Accept an invitation and set a password',
    body: WithToken,
    responses: { 204: null },
    attempts_per_min: 60,
    handle: async ({ body }) => acceptInvitation(body.token, body.password),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/auth/password-reset',
    permission: anybody('users who forgot their password cannot sign in'),
    summary: 'Send a password reset link; the answer is the same for unknown addresses',
    body: z.strictObject({ email: Email }),
    responses: { 204: null },
    attempts_per_min: 60,
    handle: async ({ body }) => {
      await Promise.all([requestReset(body.email), delay(resetAnswerMs)])
    },
  }),

  operation({
    method: 'POST',
    path: '/api/v1/auth/password-reset/confirm',
    permission: mailed,
    summary: 'Reset the password with a mailed token, and end all sessions; the authenticator stays',
    body: WithToken,
    responses: { 204: null },
    attempts_per_min: 60,
    handle: async ({ body, address }) => resetPassword(body.token, body.password, address),
  }),
]
