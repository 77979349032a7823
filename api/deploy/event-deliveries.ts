import { z } from 'zod'
import { eventKinds, subscriptionOf } from '../../models/deploy/event-subscriptions.ts'
import {
  deliveryOfSubscription,
  deliveryStates,
  EventDelivery,
  type EventDeliveryDocument,
  redeliver,
  tellTest,
} from '../../models/deploy/events.ts'
import { Id, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { bySubscription, path as subscriptionsPath } from './event-subscriptions.ts'

const DeliveryView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    subscription_id: Id,
    event_id: Id.describe('The `webhook-id`: the same in each attempt'),
    kind: z.enum([...eventKinds, 'test']),
    message: z.string(),
    status: z.enum(deliveryStates).describe('`delivered`: answered with 2xx, or handed to the mailer'),
    attempts: z.int().describe('How often it was sent'),
    next_at: Timestamp.nullable().describe('When the next attempt is due'),
    attempted_at: Timestamp.nullable(),
    duration_ms: z.int().nullable(),
    response_status: z.int().nullable(),
    response_body: z.string().nullable().describe('The first KiB of the answer'),
    error: z.string().nullable().describe('Why the last attempt failed'),
    ended_at: Timestamp.nullable(),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'EventDelivery' })

const toView = (delivery: EventDeliveryDocument): z.output<typeof DeliveryView> => ({
  id: delivery._id,
  tenant_id: delivery.tenant_id,
  subscription_id: delivery.subscription_id,
  event_id: delivery.event_id,
  kind: delivery.kind,
  message: delivery.message,
  status: delivery.status,
  attempts: delivery.attempts,
  next_at: timeOrNull(delivery.next_at),
  attempted_at: timeOrNull(delivery.attempted_at),
  duration_ms: delivery.duration_ms,
  response_status: delivery.response_status,
  response_body: delivery.response_body,
  error: delivery.error,
  ended_at: timeOrNull(delivery.ended_at),
  created_at: time(delivery.created_at),
  updated_at: time(delivery.updated_at),
})

const path = `${subscriptionsPath}/{subscription}`
const byDelivery = z.strictObject({ id: Id, subscription: Id, delivery: Id })

/** The HTTP operations on the deliveries of events. */
export const eventDeliveries = [
  operation({
    method: 'POST',
    path: `${path}/test`,
    permission: 'webhooks:update',
    summary: 'Send a test event to a subscription, regardless of its kinds',
    params: bySubscription,
    responses: { 201: DeliveryView },
    attempts_per_min: 60, // each is sent
    handle: async ({ caller, params: { id, subscription } }) => {
      const delivery = await tellTest(await subscriptionOf(caller, id, subscription))
      const location = `/api/v1/deploy-servers/${id}/event-subscriptions/${subscription}/deliveries/${delivery._id}`
      return { location, body: toView(delivery) }
    },
  }),

  list({
    path: `${path}/deliveries`,
    permission: 'webhooks:read',
    summary: 'List the deliveries to a subscription in the last 30 days',
    params: bySubscription,
    model: EventDelivery,
    view: DeliveryView,
    toView,
    scope: async (caller, { id, subscription }) => {
      const { _id, tenant_id } = await subscriptionOf(caller, id, subscription)
      return { tenant_id, subscription_id: _id }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/deliveries/{delivery}`,
    permission: 'webhooks:read',
    summary: 'Get a delivery',
    params: byDelivery,
    responses: { 200: DeliveryView },
    handle: async ({ caller, params: { id, subscription, delivery } }) =>
      toView(await deliveryOfSubscription(await subscriptionOf(caller, id, subscription), delivery)),
  }),

  operation({
    method: 'POST',
    path: `${path}/deliveries/{delivery}/redeliver`,
    permission: 'webhooks:update',
    summary: 'Deliver an event again, with the same id',
    params: byDelivery,
    responses: { 200: DeliveryView },
    attempts_per_min: 60, // each is sent
    handle: async ({ caller, params: { id, subscription, delivery } }) => {
      const its = await subscriptionOf(caller, id, subscription)
      return toView(await redeliver(its, await deliveryOfSubscription(its, delivery)))
    },
  }),
]
