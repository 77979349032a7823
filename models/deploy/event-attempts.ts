import { transaction } from '../database.ts'
import { eventMailsPerHour, queueEventMail } from '../identity/mails.ts'
import { User } from '../identity/users.ts'
import { isSuppressed } from '../mail/suppressions.ts'
import { everyTenant } from '../tenant-scope.ts'
import { EventSubscription, type EventSubscriptionDocument, isOfUser } from './event-subscriptions.ts'
import { EventDelivery, type EventDeliveryDocument } from './events.ts'

// Attempts to deliver events. A worker that is killed while it delivers has not recorded it: another one delivers the
// event again, with the same id. So an event may arrive twice, but is never lost.

const secMs = 1_000
const minuteMs = 60 * secMs
const hourMs = 60 * minuteMs

/** After each failed attempt; as Standard Webhooks recommends, for three days. After the last, the delivery has failed. */
const pausesMs = [
  5 * secMs,
  5 * minuteMs,
  30 * minuteMs,
  2 * hourMs,
  5 * hourMs,
  10 * hourMs,
  14 * hourMs,
  20 * hourMs,
  24 * hourMs,
]
/** A subscription to which nothing was delivered for this time is disabled. */
const hopelessMs = 7 * 24 * hourMs
/** How long one attempt may take. */
export const attemptMs = 15 * secMs
/** Longer than an attempt with its records. Then its worker was killed, and another one takes the delivery. */
const claimMs = attemptMs + 10 * secMs

/** A delivery that one worker attempts. */
export interface Attempt {
  delivery: EventDeliveryDocument
  subscription: EventSubscriptionDocument
}

/** Claims the delivery that is due longest, of other receivers and tenants than these. Null if none is due. */
export async function claimDelivery(busy: {
  receivers: string[]
  tenants: string[]
}): Promise<Attempt | null> {
  const now = new Date()
  const delivery = await EventDelivery.findOneAndUpdate(
    {
      status: 'waiting',
      next_at: { $lte: now },
      receiver: { $nin: busy.receivers },
      tenant_id: { $nin: busy.tenants },
    },
    { $inc: { attempts: 1 }, $set: { attempted_at: now, next_at: new Date(now.getTime() + claimMs) } },
    { sort: { next_at: 1 }, returnDocument: 'after' },
  )
    .setOptions(everyTenant)
    .lean()
  if (!delivery) return null
  const { _id, tenant_id, subscription_id } = delivery
  const subscription = await EventSubscription.findOne({ _id: subscription_id, tenant_id }).lean()
  if (subscription?.enabled) return { delivery, subscription }
  // It was deleted or disabled while the event was told.
  if (subscription) await failWaiting(subscription)
  else await EventDelivery.deleteOne({ _id, tenant_id })
  return claimDelivery(busy)
}

/** What an attempt has come to. */
export interface Result {
  /** Null: it was delivered. */
  error: string | null
  duration_ms: number
  response_status?: number
  response_body?: string
  /** Trying again cannot help. */
  final?: boolean
  /** The receiver wants nothing more: disables the subscription. */
  gone?: boolean
  /** The platform refused it: that tells nothing of the receiver, and does not count as its failure. */
  refused?: boolean
}

/** Records an attempt. Nothing happens if the delivery was claimed or asked for again since. */
export const settleAttempt = (attempt: Attempt, result: Result): Promise<void> =>
  transaction(() => settle(attempt, result), attempt.subscription._id)

async function settle({ delivery }: Attempt, result: Result): Promise<void> {
  const { error, final = false, gone = false, refused = false, duration_ms } = result
  const { response_status = null, response_body = null } = result
  const now = new Date()
  const pauseMs = final || gone ? undefined : pausesMs[delivery.attempts - delivery.attempts_before - 1]
  const next_at = error === null || pauseMs === undefined ? null : new Date(now.getTime() + pauseMs)
  const status = error === null ? 'delivered' : next_at ? 'waiting' : 'failed'
  const ended_at = next_at ? null : now
  const { modifiedCount } = await EventDelivery.updateOne(claimed(delivery), {
    $set: { status, error, next_at, duration_ms, response_status, response_body, ended_at },
  })
  if (modifiedCount === 0 || refused) return
  const its = { _id: delivery.subscription_id, tenant_id: delivery.tenant_id }
  const subscription = await EventSubscription.findOne(its).lean()
  if (!subscription) return
  if (error === null) {
    if (subscription.failing_since) await EventSubscription.updateOne(its, { $set: { failing_since: null } })
    return
  }
  const since = subscription.failing_since ?? now
  if (gone) await disable(subscription, 'The receiver answered 410 Gone')
  else if (now.getTime() - since.getTime() >= hopelessMs)
    await disable(subscription, `Nothing was delivered for a week; the last failure: ${error}`)
  else if (!subscription.failing_since)
    await EventSubscription.updateOne({ ...its, failing_since: null }, { $set: { failing_since: now } })
}

/** Gives a delivery back that a stopping worker has begun. */
export async function releaseAttempt({ delivery }: Attempt): Promise<void> {
  await EventDelivery.updateOne(claimed(delivery), { $set: { next_at: new Date() }, $inc: { attempts: -1 } })
}

const claimed = ({ _id, tenant_id, attempts, next_at }: EventDeliveryDocument) => ({
  _id,
  tenant_id,
  attempts,
  next_at,
  status: 'waiting' as const,
})

/** Hands an event to the mailer, in one transaction with the record of it. */
export const mailEvent = (attempt: Attempt): Promise<void> =>
  transaction(async () => {
    const { delivery, subscription } = attempt
    const address = subscription.address ?? ''
    const fail = (error: string) => settle(attempt, { error, final: true, duration_ms: 0 })
    if (!(await isOfUser(subscription.tenant_id, address)))
      return fail('No active user of the tenant has this address')
    if (await isSuppressed(address))
      return fail('The address gets no mail, because mail to it bounced or was reported as spam')
    const mail = { to: address, subject: delivery.message.slice(0, 150), text: textOf(attempt) }
    if (await queueEventMail(subscription.tenant_id, mail))
      return settle(attempt, { error: null, duration_ms: 0 })
    const error = `The tenant has had its ${eventMailsPerHour} mails of this hour: deliver it again later`
    return settle(attempt, { error, final: true, refused: true, duration_ms: 0 })
  }, attempt.subscription._id)

const textOf = ({ delivery, subscription }: Attempt): string => `${delivery.message}.

${JSON.stringify(JSON.parse(delivery.body), null, 2)}

The event subscription ${subscription.name} of a deploy server sent this mail.
`

/** Nothing more is delivered until the tenant enables it again. The owners get a mail, within the limit of the tenant's mails. */
async function disable(subscription: EventSubscriptionDocument, status_reason: string): Promise<void> {
  const { _id, tenant_id, name, url, address } = subscription
  const { modifiedCount } = await EventSubscription.updateOne(
    { _id, tenant_id, enabled: true },
    { $set: { enabled: false, status_reason } },
  )
  if (modifiedCount === 0) return
  await failWaiting(subscription)
  const text = `The event subscription ${name} (${url ?? address}) was disabled.

${status_reason}

Enable it once its receiver works, and deliver again what the delivery log shows as failed.
`
  for (const { email } of await User.find(
    { tenant_id, status: 'active', roles: 'owner' },
    { email: 1 },
  ).lean())
    await queueEventMail(tenant_id, {
      to: email,
      subject: `The event subscription ${name} was disabled`,
      text,
    })
}

async function failWaiting({ _id, tenant_id }: EventSubscriptionDocument): Promise<void> {
  const error = 'The subscription was disabled'
  await EventDelivery.updateMany(
    { subscription_id: _id, tenant_id, status: 'waiting' },
    { $set: { status: 'failed', next_at: null, ended_at: new Date(), error } },
  )
}
