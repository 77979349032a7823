import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { endOf } from '../../lib/secret-hints.ts'
import { newWebhookSecret } from '../../lib/standard-webhooks.ts'
import { transaction } from '../database.ts'
import { User } from '../identity/users.ts'
import { lockParent } from '../parents.ts'
import { documentOptions, idField, mine, named } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { Application } from './applications.ts'
import { deployServerResource } from './deploy-servers.ts'

/** What a subscription can tell of. */
export const eventKinds = [
  'application.deployed',
  'application.deploy_failed',
  'application.rolled_back',
  'worker.lost',
  'worker.replaced',
  'control_plane.lost',
  'control_plane.replaced',
  'certificate.expiring',
  'connector.reauth_required',
  'connector.refused',
  'backup.succeeded',
  'backup.failed',
  'backup.missed',
  'backup.damaged',
  'backup.not_verified',
  'archive.paused',
  'archive.damaged',
] as const
export type EventKind = (typeof eventKinds)[number]

/** Whom a deploy server tells of what: a signed webhook, or an e-mail address of a user of the tenant. */
export interface EventSubscriptionDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  /** Unique in the deploy server. */
  name: string
  /** Null: all kinds, also those to come. */
  kinds: EventKind[] | null
  /** Null: all applications. It does not limit events that are not of an application. */
  app_ids: string[] | null
  /** Either of the two. */
  url: string | null
  address: string | null
  /** Signs webhooks; `-` for mails. */
  secret_sealed: string
  secret_hint: string | null
  /** Also signs until `former_until`, so that a receiver has time to take the new one; `-` for none. */
  former_sealed: string
  former_until: Date | null
  enabled: boolean
  /** Why the platform disabled it. */
  status_reason: string | null
  /** The first failed attempt since the last delivery. */
  failing_since: Date | null
  created_at: Date
  updated_at: Date
}

const schema = new Schema<EventSubscriptionDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    name: { type: String, required: true },
    kinds: { type: [String], default: null },
    app_ids: { type: [String], default: null },
    url: { type: String, default: null },
    address: { type: String, default: null },
    secret_sealed: { type: String, required: true },
    secret_hint: { type: String, default: null },
    former_sealed: { type: String, default: '-' },
    former_until: { type: Date, default: null },
    enabled: { type: Boolean, default: true },
    status_reason: { type: String, default: null },
    failing_since: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'event_subscriptions' },
)
tenantScoped(schema)
schema.index({ deploy_server_id: 1, name: 1 }, { unique: true })
schema.index({ tenant_id: 1 })
export const EventSubscription = mongoose.model<EventSubscriptionDocument>('EventSubscription', schema)
sealedField(EventSubscription, 'secret_sealed')
sealedField(EventSubscription, 'former_sealed')

export const subscriptionsAtMost = 20
const formerMs = 24 * 3_600_000

type Fields = Pick<EventSubscriptionDocument, 'name' | 'kinds' | 'app_ids' | 'url' | 'address'>
/** A subscription with its secret, which is shown only once; null for mails. */
export interface WithSecret {
  subscription: EventSubscriptionDocument
  secret: string | null
}

/** Throws NotFound, InvalidInput, NameTaken, StateConflict while the deploy server is deleted, `too_many_subscriptions`. */
export const createSubscription = (
  { tenant_id }: { tenant_id: string },
  deploy_server_id: string,
  fields: Fields,
): Promise<WithSecret> =>
  named('event subscription', fields.name, () =>
    transaction(async () => {
      await lockParent(deployServerResource, tenant_id, deploy_server_id)
      const its = { tenant_id, deploy_server_id }
      await needPlaces(its, fields)
      if ((await EventSubscription.countDocuments(its)) >= subscriptionsAtMost)
        throw new Problem(
          409,
          'too_many_subscriptions',
          'Too many event subscriptions',
          `A deploy server has at most ${subscriptionsAtMost} event subscriptions`,
        )
      const _id = newId()
      const { secret, kept } = await newSecret(_id, fields.url)
      const saved = await new EventSubscription({ ...fields, ...its, ...kept, _id }).save()
      return { subscription: saved.toObject(), secret }
    }, deploy_server_id),
  )

export type SubscriptionChanges = { [Field in keyof Fields]?: Fields[Field] | undefined } & {
  enabled?: boolean | undefined
}

/** Enabling it forgets former failures. Throws NotFound, InvalidInput, NameTaken. */
export const changeSubscription = (
  subscription: EventSubscriptionDocument,
  changes: SubscriptionChanges,
): Promise<EventSubscriptionDocument> =>
  named('event subscription', changes.name ?? '', async () => {
    const { _id, tenant_id, url } = subscription
    const given = Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined))
    for (const field of url === null ? (['url'] as const) : (['address'] as const))
      if (field in given)
        throw new InvalidInput(422, [
          { pointer: `/${field}`, message: 'the kind of target cannot be changed' },
        ])
    await needPlaces(subscription, changes)
    const fresh = changes.enabled === undefined ? {} : { status_reason: null, failing_since: null }
    const changed = await EventSubscription.findOneAndUpdate(
      { _id, tenant_id },
      { $set: { ...given, ...fresh } },
      { returnDocument: 'after' },
    ).lean()
    if (!changed) throw new NotFound('event subscription')
    return changed
  })

/** Makes a new secret. The former one signs as well for a day. Throws NotFound, and a 409 for mails. */
export async function rotateSecret(subscription: EventSubscriptionDocument): Promise<WithSecret> {
  const { _id, tenant_id, url } = subscription
  if (url === null) throw new Problem(409, 'no_secret', 'Mails are not signed')
  const { secret, kept } = await newSecret(_id, url)
  const former = {
    // The context of the seal is the document's id, for both fields.
    former_sealed: subscription.secret_sealed,
    former_until: new Date(Date.now() + formerMs),
  }
  const changed = await EventSubscription.findOneAndUpdate(
    { _id, tenant_id, secret_sealed: subscription.secret_sealed },
    { $set: { ...kept, ...former } },
    { returnDocument: 'after' },
  ).lean()
  if (!changed) throw new NotFound('event subscription')
  return { subscription: changed, secret }
}

/** The secrets that sign now, the newest first. */
export async function openWebhookSecrets({
  _id,
  secret_sealed,
  former_sealed,
  former_until,
}: EventSubscriptionDocument): Promise<string[]> {
  const hasFormer = former_until !== null && former_until > new Date()
  const sealed = hasFormer ? [secret_sealed, former_sealed] : [secret_sealed]
  return Promise.all(sealed.map((one) => unsealSecret<string>(one, _id)))
}

/** The subscription of this deploy server of the caller's tenant. Throws NotFound. */
export async function subscriptionOf(
  caller: { tenant_id: string },
  deployServerId: string,
  _id: string,
): Promise<EventSubscriptionDocument> {
  const { _id: deploy_server_id, tenant_id } = await mine(deployServerResource, caller, deployServerId)
  const subscription = await EventSubscription.findOne({ _id, deploy_server_id, tenant_id }).lean()
  if (!subscription) throw new NotFound('event subscription')
  return subscription
}

/** A mail goes to a user of the tenant only: the platform does not write to strangers. */
export const isOfUser = async (tenant_id: string, address: string): Promise<boolean> =>
  (await User.exists({ tenant_id, email: address.toLowerCase(), status: 'active' })) !== null

async function newSecret(_id: string, url: string | null) {
  if (url === null) return { secret: null, kept: { secret_sealed: '-', secret_hint: null } }
  const secret = newWebhookSecret()
  return {
    secret,
    kept: { secret_sealed: await sealSecret(secret, _id), secret_hint: endOf(secret) },
  }
}

async function needPlaces(
  { tenant_id, deploy_server_id }: { tenant_id: string; deploy_server_id: string },
  { address, app_ids }: { address?: string | null | undefined; app_ids?: string[] | null | undefined },
): Promise<void> {
  if (address && !(await isOfUser(tenant_id, address)))
    throw new InvalidInput(422, [
      { pointer: '/address', message: 'no active user of the tenant has this address' },
    ])
  const asked = [...new Set(app_ids ?? [])]
  const found = await Application.countDocuments({ _id: { $in: asked }, tenant_id, deploy_server_id })
  if (found < asked.length)
    throw new InvalidInput(422, [
      { pointer: '/app_ids', message: 'no such application of the deploy server' },
    ])
}
