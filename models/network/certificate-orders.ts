import { generateKeyPairSync } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { StateConflict } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { Operation } from '../operations.ts'
import { documentOptions, idField } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { Certificate, fieldsOf, renewalOf } from './certificates.ts'
import { loadBalancersChanged } from './load-balancer-news.ts'

// What obtaining a certificate by ACME leaves in the records until it is installed. A step that runs again after a kill
// goes on with the recorded account, order and key.

/** A tenant's account at the authority of one directory. */
export interface AcmeAccountDocument {
  _id: string
  tenant_id: string
  directory: string
  /** Null until the authority has registered the key. */
  url: string | null
  private_key_sealed: string
}

const accountSchema = new Schema<AcmeAccountDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    directory: { type: String, required: true },
    url: { type: String, default: null },
    private_key_sealed: { type: String, required: true },
  },
  { ...documentOptions, collection: 'acme_accounts' },
)
tenantScoped(accountSchema)
accountSchema.index({ tenant_id: 1, directory: 1 }, { unique: true })
export const AcmeAccount = mongoose.model<AcmeAccountDocument>('AcmeAccount', accountSchema)
sealedField(AcmeAccount, 'private_key_sealed')

/** The order of one operation, under its id. */
export interface CertificateOrderDocument {
  _id: string
  tenant_id: string
  certificate_id: string
  domains: string[]
  /** Where the authority has the order. Null until it was placed. */
  url: string | null
  /** The key of the new certificate. */
  private_key_sealed: string
  /** The chain, once the authority has issued it. */
  certificate_pem: string | null
}

const orderSchema = new Schema<CertificateOrderDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    certificate_id: { type: String, required: true },
    domains: { type: [String], required: true },
    url: { type: String, default: null },
    private_key_sealed: { type: String, required: true },
    certificate_pem: { type: String, default: null },
  },
  { ...documentOptions, collection: 'certificate_orders' },
)
tenantScoped(orderSchema)
export const CertificateOrder = mongoose.model<CertificateOrderDocument>('CertificateOrder', orderSchema)
sealedField(CertificateOrder, 'private_key_sealed')

/** A proof that the tenant's load balancers give to the authority while an order is open. */
export interface AcmeChallengeDocument {
  _id: string
  tenant_id: string
  certificate_id: string
  order_id: string
  domain: string
  token: string
  key_authorization: string
}

const challengeSchema = new Schema<AcmeChallengeDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    certificate_id: { type: String, required: true },
    order_id: { type: String, required: true },
    domain: { type: String, required: true },
    token: { type: String, required: true },
    key_authorization: { type: String, required: true },
  },
  { ...documentOptions, collection: 'acme_challenges' },
)
tenantScoped(challengeSchema)
challengeSchema.index({ tenant_id: 1 })
challengeSchema.index({ order_id: 1, token: 1 }, { unique: true })
export const AcmeChallenge = mongoose.model<AcmeChallengeDocument>('AcmeChallenge', challengeSchema)

const newKey = (): string =>
  generateKeyPairSync('ec', { namedCurve: 'P-256' })
    .privateKey.export({ type: 'pkcs8', format: 'pem' })
    .toString()

/** The tenant's account in this directory, with its key. Makes the record if there is none. */
export async function accountOf(
  tenant_id: string,
  directory: string,
): Promise<AcmeAccountDocument & { key: string }> {
  const found = await AcmeAccount.findOne({ tenant_id, directory }).lean()
  const account = found ?? (await newAccount(tenant_id, directory))
  return { ...account, key: await unsealSecret<string>(account.private_key_sealed, account._id) }
}

async function newAccount(tenant_id: string, directory: string): Promise<AcmeAccountDocument> {
  const account = new AcmeAccount({ tenant_id, directory, private_key_sealed: '-' })
  account.private_key_sealed = await sealSecret(newKey(), account._id)
  try {
    return (await account.save()).toObject()
  } catch (error) {
    if (!isDuplicateKey(error)) throw error
    // Another order of the tenant made it at the same time.
    const theirs = await AcmeAccount.findOne({ tenant_id, directory }).lean()
    if (!theirs) throw error
    return theirs
  }
}

/** Records where the authority has the account; null if it does not know it any more. */
export async function recordAccount(
  { _id, tenant_id }: Pick<AcmeAccountDocument, '_id' | 'tenant_id'>,
  url: string | null,
): Promise<void> {
  await AcmeAccount.updateOne({ _id, tenant_id }, { $set: { url } })
}

/**
 * The order of this operation, made if there is none, with a new key. Throws StateConflict if the operation does not
 * hold the certificate any more.
 */
export async function openOrder(
  operationId: string,
  certificateId: string,
): Promise<CertificateOrderDocument> {
  const found = await findOrder(operationId)
  if (found) return found
  const private_key_sealed = await sealSecret(newKey(), operationId)
  return transaction(async () => {
    // The write keeps the operation from ending meanwhile.
    const certificate = await Certificate.findOneAndUpdate(
      { _id: certificateId, operation_id: operationId },
      { $inc: { turns: 1 } },
      { timestamps: false },
    )
      .setOptions(everyTenant)
      .lean()
    if (!certificate) throw new StateConflict('order a certificate', 'ended')
    const { tenant_id, domains } = certificate
    const fields = { _id: operationId, tenant_id, certificate_id: certificateId, domains, private_key_sealed }
    return (await new CertificateOrder(fields).save()).toObject()
  })
}

/** Null if it was installed or dropped. */
export const findOrder = (operationId: string): Promise<CertificateOrderDocument | null> =>
  CertificateOrder.findById(operationId).setOptions(everyTenant).lean()

/** The key of the order's new certificate. Secret. */
export const orderKey = ({ _id, private_key_sealed }: CertificateOrderDocument): Promise<string> =>
  unsealSecret<string>(private_key_sealed, _id)

export async function recordOrder(
  { _id, tenant_id }: CertificateOrderDocument,
  set: { url?: string; certificate_pem?: string },
): Promise<void> {
  await CertificateOrder.updateOne({ _id, tenant_id }, { $set: set })
}

/** Has the tenant's load balancers answer these challenges, until the order is installed or dropped. */
export async function publishChallenges(
  { _id: order_id, tenant_id, certificate_id }: CertificateOrderDocument,
  challenges: Pick<AcmeChallengeDocument, 'domain' | 'token' | 'key_authorization'>[],
): Promise<void> {
  await transaction(async () => {
    // A step that outlived its operation publishes nothing.
    const touched = await CertificateOrder.updateOne({ _id: order_id, tenant_id }, { $set: { tenant_id } })
    if (touched.matchedCount === 0) throw new StateConflict('publish challenges', 'ended')
    for (const { token, ...fields } of challenges)
      await AcmeChallenge.updateOne(
        { tenant_id, order_id, token },
        { $set: { ...fields, certificate_id } },
        { upsert: true },
      )
    loadBalancersChanged({ challenges_of: tenant_id })
  })
}

/** The challenges of each of these tenants, by tenant; each token once. */
export async function challengesOf(
  tenantIds: string[],
): Promise<Map<string, { token: string; key_authorization: string }[]>> {
  const all = await AcmeChallenge.find({ tenant_id: { $in: tenantIds } })
    .setOptions(everyTenant)
    .sort({ _id: 1 })
    .lean()
  const byTenant = new Map<string, Map<string, string>>()
  for (const { tenant_id, token, key_authorization } of all) {
    const its = byTenant.get(tenant_id) ?? new Map<string, string>()
    byTenant.set(tenant_id, its.set(token, key_authorization)) // two orders can share a challenge
  }
  return new Map(
    [...byTenant].map(([tenant, its]) => [
      tenant,
      [...its].map(([token, key_authorization]) => ({ token, key_authorization })),
    ]),
  )
}

/** Gives up an order: its key is forgotten, and its challenges are not answered any more. Idempotent. */
export async function dropOrder(operationId: string): Promise<void> {
  await transaction(async () => {
    const order = await findOrder(operationId)
    if (order) await removeOrder(order)
  })
}

/**
 * Gives up the orders of operations that have ended and could not do it themselves, as when an operator terminates the
 * workflow.
 */
export async function dropEndedOrders(): Promise<void> {
  const orders = await CertificateOrder.find({}, { _id: 1 }).setOptions(everyTenant).lean()
  const ids = orders.map(({ _id }) => _id)
  const open = await Operation.distinct('_id', { _id: { $in: ids }, open: true }).setOptions(everyTenant)
  for (const id of ids) if (!open.includes(id)) await dropOrder(id)
}

async function removeOrder({ _id, tenant_id }: CertificateOrderDocument): Promise<void> {
  await CertificateOrder.deleteOne({ _id, tenant_id })
  await AcmeChallenge.deleteMany({ tenant_id, order_id: _id })
  loadBalancersChanged({ challenges_of: tenant_id })
}

/**
 * Puts the issued certificate in the place of the former one, and closes the order. Does nothing if it has happened.
 * Throws InvalidInput if the chain is not usable.
 */
export async function installCertificate(operationId: string): Promise<void> {
  await transaction(async () => {
    const order = await findOrder(operationId)
    if (!order || order.certificate_pem === null) return
    const { tenant_id, certificate_id: _id, certificate_pem } = order
    const fields = await fieldsOf(tenant_id, { certificate_pem, private_key_pem: await orderKey(order) })
    const renews_at = renewalOf(fields.not_before, fields.not_after)
    await Certificate.updateOne(
      { _id, tenant_id, operation_id: operationId },
      { $set: { ...fields, renews_at, failures: 0 } },
    )
    await removeOrder(order)
    loadBalancersChanged({ certificate_id: _id })
  })
}
