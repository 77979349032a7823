import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { NotFound, StateConflict } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { type EventKind, EventSubscription, type EventSubscriptionDocument } from './event-subscriptions.ts'

// Events, and their deliveries: one for each subscription that asks for the kind. They are written in the transaction
// of the change that they tell of, so that none is lost and none is invented. Workers deliver them
// (models/deploy/event-attempts.ts).

export const deliveryStates = ['waiting', 'delivered', 'failed'] as const

/** One event on its way to one subscription. The list of them is the delivery log. */
export interface EventDeliveryDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  subscription_id: string
  /** The same for all deliveries and attempts of an event. */
  event_id: string
  kind: EventKind | 'test'
  /** One sentence, for people. */
  message: string
  /** What is sent, byte for byte the same in each attempt. */
  body: string
  status: (typeof deliveryStates)[number]
  /** When it is attempted next; while it is attempted, when another worker may do so. */
  next_at: Date | null
  /** Whose slowness delays this delivery: other receivers are not delayed by it. */
  receiver: string
  attempts: number
  /** The attempts before it was asked for anew. */
  attempts_before: number
  /** The last attempt. */
  attempted_at: Date | null
  duration_ms: number | null
  response_status: number | null
  /** Its first part. */
  response_body: string | null
  error: string | null
  ended_at: Date | null
  created_at: Date
  updated_at: Date
}

const keptSec = 30 * 86_400
const date = { type: Date, default: null }
const text = { type: String, default: null }
const schema = new Schema<EventDeliveryDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    subscription_id: { type: String, required: true },
    event_id: { type: String, required: true },
    kind: { type: String, required: true },
    message: { type: String, required: true },
    body: { type: String, required: true },
    status: { type: String, required: true, enum: deliveryStates, default: 'waiting' },
    next_at: date,
    receiver: { type: String, required: true },
    attempts: { type: Number, default: 0 },
    attempts_before: { type: Number, default: 0 },
    attempted_at: date,
    duration_ms: { type: Number, default: null },
    response_status: { type: Number, default: null },
    response_body: text,
    error: text,
    ended_at: date,
  },
  { ...documentOptions, collection: 'event_deliveries' },
)
tenantScoped(schema)
schema.index({ next_at: 1 }, { partialFilterExpression: { status: 'waiting' } })
schema.index({ subscription_id: 1, created_at: -1 })
schema.index({ deploy_server_id: 1 })
schema.index({ created_at: 1 }, { expireAfterSeconds: keptSec })
export const EventDelivery = mongoose.model<EventDeliveryDocument>('EventDelivery', schema)

/** What has happened. */
export interface NewEvent {
  tenant_id: string
  /** Null: it concerns all deploy servers of the tenant. */
  deploy_server_id: string | null
  /** The application that it is of. */
  app_id?: string
  kind: EventKind
  /** One sentence, for people: `w2 is lost`. */
  message: string
  /** For programs. Never a secret. */
  data: Record<string, unknown>
}

/** Tells the subscriptions that ask for it. Joins the caller's transaction, and so is told only if that commits. */
export const tellEvent = ({ tenant_id, deploy_server_id, app_id, ...event }: NewEvent): Promise<void> =>
  transaction(async () => {
    const subscriptions = await EventSubscription.find({
      tenant_id,
      ...(deploy_server_id === null ? {} : { deploy_server_id }),
      enabled: true,
    }).lean()
    const asking = subscriptions.filter(
      ({ kinds, app_ids }) =>
        (kinds === null || kinds.includes(event.kind)) &&
        (app_ids === null || app_id === undefined || app_ids.includes(app_id)),
    )
    const event_id = newId()
    for (const subscription of asking) await deliveryOf(subscription, { ...event, event_id }).save()
  }, tenant_id)

/** A delivery that says only that the subscription works. Throws StateConflict if it is disabled or a test is under way. */
export const tellTest = (subscription: EventSubscriptionDocument): Promise<EventDeliveryDocument> =>
  transaction(async () => {
    const { _id: subscription_id, tenant_id, name } = subscription
    needEnabled(subscription)
    if (await EventDelivery.exists({ subscription_id, tenant_id, kind: 'test', status: 'waiting' }))
      throw new StateConflict('test the subscription', 'testing')
    const message = `This is a test of the event subscription ${name}`
    const event = { event_id: newId(), kind: 'test', message, data: {} } as const
    return (await deliveryOf(subscription, event).save()).toObject()
  }, subscription._id)

function deliveryOf(
  { _id: subscription_id, tenant_id, deploy_server_id, url }: EventSubscriptionDocument,
  {
    event_id,
    kind,
    message,
    data,
  }: Pick<EventDeliveryDocument, 'event_id' | 'kind' | 'message'> & { data: object },
) {
  const now = new Date()
  const told = { deploy_server_id, message, ...data }
  return new EventDelivery({
    tenant_id,
    deploy_server_id,
    subscription_id,
    event_id,
    kind,
    message,
    body: JSON.stringify({ id: event_id, type: kind, timestamp: now.toISOString(), data: told }),
    next_at: now,
    receiver: `${tenant_id} ${url === null ? 'mail' : new URL(url).host}`,
  })
}

/** Delivers it again, with the same id, also if it was delivered. Throws NotFound, and StateConflict if disabled. */
export async function redeliver(
  subscription: EventSubscriptionDocument,
  { _id, tenant_id, attempts }: EventDeliveryDocument,
): Promise<EventDeliveryDocument> {
  needEnabled(subscription)
  const again = await EventDelivery.findOneAndUpdate(
    { _id, tenant_id },
    { $set: { status: 'waiting', next_at: new Date(), attempts_before: attempts, ended_at: null } },
    { returnDocument: 'after' },
  ).lean()
  if (!again) throw new NotFound('delivery')
  return again
}

function needEnabled({ enabled }: EventSubscriptionDocument): void {
  if (!enabled) throw new StateConflict('deliver', 'disabled')
}

/** The delivery of this subscription. Throws NotFound. */
export async function deliveryOfSubscription(
  { _id: subscription_id, tenant_id }: EventSubscriptionDocument,
  _id: string,
): Promise<EventDeliveryDocument> {
  const delivery = await EventDelivery.findOne({ _id, subscription_id, tenant_id }).lean()
  if (!delivery) throw new NotFound('delivery')
  return delivery
}

/** Removes a subscription with its delivery log. */
export const deleteSubscription = ({ _id, tenant_id }: EventSubscriptionDocument): Promise<void> =>
  transaction(async () => {
    const { deletedCount } = await EventSubscription.deleteOne({ _id, tenant_id })
    if (!deletedCount) throw new NotFound('event subscription')
    await EventDelivery.deleteMany({ subscription_id: _id, tenant_id })
  }, _id)

/** Removes all subscriptions of a deploy server, with their delivery logs. */
export async function forgetSubscriptions(tenant_id: string, deploy_server_id: string): Promise<void> {
  await EventSubscription.deleteMany({ tenant_id, deploy_server_id })
  await EventDelivery.deleteMany({ tenant_id, deploy_server_id })
}
