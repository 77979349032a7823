import { inDeployServer } from './children.ts'
import { z } from 'zod'
import { InvalidInput } from '../../lib/problem.ts'
import { deployServerResource } from '../../models/deploy/deploy-servers.ts'
import {
  changeSubscription,
  createSubscription,
  eventKinds,
  EventSubscription,
  type EventSubscriptionDocument,
  rotateSecret,
  subscriptionOf,
  type WithSecret,
} from '../../models/deploy/event-subscriptions.ts'
import { deleteSubscription } from '../../models/deploy/events.ts'
import { mine } from '../../models/resources.ts'
import { byId, Email, Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { path as serverPath } from './deployments.ts'

const SubscriptionView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    deploy_server_id: Id,
    name: z.string(),
    kinds: z
      .array(z.enum(eventKinds))
      .nullable()
      .describe('The kinds of events that are delivered; null: all'),
    app_ids: z.array(Id).nullable().describe('The applications whose events are delivered; null: all'),
    url: z.string().nullable().describe('The URL of a webhook'),
    address: z.string().nullable().describe('The address of mails'),
    enabled: z.boolean(),
    status_reason: z.string().nullable().describe('Why the platform disabled it'),
    failing_since: Timestamp.nullable().describe('The first failed attempt since the last delivery'),
    secret_hint: z.string().nullable().describe('The last four characters'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'EventSubscription' })

const toView = (subscription: EventSubscriptionDocument): z.output<typeof SubscriptionView> => ({
  id: subscription._id,
  tenant_id: subscription.tenant_id,
  deploy_server_id: subscription.deploy_server_id,
  name: subscription.name,
  kinds: subscription.kinds,
  app_ids: subscription.app_ids,
  url: subscription.url,
  address: subscription.address,
  enabled: subscription.enabled,
  status_reason: subscription.status_reason,
  failing_since: timeOrNull(subscription.failing_since),
  secret_hint: subscription.secret_hint,
  created_at: time(subscription.created_at),
  updated_at: time(subscription.updated_at),
})

const SubscriptionWithSecret = z
  .strictObject({
    ...SubscriptionView.shape,
    secret: z
      .string()
      .nullable()
      .describe('The secret that signs the webhooks, shown only here; null for mails'),
  })
  .meta({ id: 'EventSubscriptionWithSecret' })

const withSecret = ({ subscription, secret }: WithSecret): z.output<typeof SubscriptionWithSecret> => ({
  ...toView(subscription),
  secret,
})

const fields = {
  name: Name.describe('Unique in the deploy server'),
  kinds: z
    .array(z.enum(eventKinds))
    .min(1)
    .transform((kinds) => [...new Set(kinds)])
    .nullable()
    .describe('The kinds of events to deliver; null: all, including future kinds'),
  app_ids: z
    .array(Id)
    .min(1)
    .max(100)
    .nullable()
    .describe(
      'The applications whose events to deliver; null: all. Events that belong to no application are always delivered',
    ),
  url: z.string().max(2048).describe('The URL for signed webhooks: http or https, at a public address'),
  address: Email.describe('The address for mails: that of an active user of the tenant'),
}

export const path = `${serverPath}/event-subscriptions`
export const bySubscription = z.strictObject({ id: Id, subscription: Id })

/** The HTTP operations on event subscriptions. */
export function makeEventSubscriptions({ outbound }: OperationsContext) {
  function needUrl(url: string | null | undefined): void {
    const fault = typeof url === 'string' ? outbound?.faultOf(url) : null
    if (fault === 'address_not_allowed')
      throw new InvalidInput(422, [
        { pointer: '/url', message: 'address_not_allowed: it is not a public address' },
      ])
    if (fault)
      throw new InvalidInput(422, [
        { pointer: '/url', message: 'must be an http or https URL without a user and password' },
      ])
  }

  return [
    list({
      path,
      permission: 'webhooks:read',
      summary: 'List the event subscriptions of a deploy server',
      params: byId,
      model: EventSubscription,
      view: SubscriptionView,
      toView,
      scope: inDeployServer,
    }),

    operation({
      method: 'POST',
      path,
      permission: 'webhooks:create',
      summary: 'Subscribe a webhook or an e-mail address to the events of a deploy server',
      params: byId,
      body: z.strictObject({
        name: fields.name,
        kinds: fields.kinds.default(null),
        app_ids: fields.app_ids.default(null),
        url: fields.url.nullable().default(null),
        address: fields.address.nullable().default(null),
      }),
      responses: { 201: SubscriptionWithSecret },
      handle: async ({ caller, params: { id }, body }) => {
        await mine(deployServerResource, caller, id)
        if ((body.url === null) === (body.address === null))
          throw new InvalidInput(422, [{ pointer: '/url', message: 'must have either url or address' }])
        needUrl(body.url)
        const made = await createSubscription(caller, id, body)
        const location = `/api/v1/deploy-servers/${id}/event-subscriptions/${made.subscription._id}`
        return { location, body: withSecret(made) }
      },
    }),

    operation({
      method: 'GET',
      path: `${path}/{subscription}`,
      permission: 'webhooks:read',
      summary: 'Get an event subscription',
      params: bySubscription,
      responses: { 200: SubscriptionView },
      handle: async ({ caller, params: { id, subscription } }) =>
        toView(await subscriptionOf(caller, id, subscription)),
    }),

    operation({
      method: 'PATCH',
      path: `${path}/{subscription}`,
      permission: 'webhooks:update',
      summary: 'Change, enable or disable an event subscription',
      params: bySubscription,
      body: z.strictObject({ ...fields, enabled: z.boolean() }).partial(),
      responses: { 200: SubscriptionView },
      handle: async ({ caller, params: { id, subscription }, body }) => {
        const before = await subscriptionOf(caller, id, subscription)
        needUrl(body.url)
        return toView(await changeSubscription(before, body))
      },
    }),

    operation({
      method: 'POST',
      path: `${path}/{subscription}/rotate-secret`,
      permission: 'webhooks:update',
      summary: 'Rotate the secret; for a day, webhooks are signed with the former one too',
      params: bySubscription,
      responses: { 200: SubscriptionWithSecret },
      handle: async ({ caller, params: { id, subscription } }) =>
        withSecret(await rotateSecret(await subscriptionOf(caller, id, subscription))),
    }),

    operation({
      method: 'DELETE',
      path: `${path}/{subscription}`,
      permission: 'webhooks:delete',
      summary: 'Delete an event subscription with its delivery log',
      params: bySubscription,
      responses: { 204: null },
      handle: async ({ caller, params: { id, subscription } }) =>
        deleteSubscription(await subscriptionOf(caller, id, subscription)),
    }),
  ]
}
