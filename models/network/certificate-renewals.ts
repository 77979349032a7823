import { NotFound, OperationInProgress, StateConflict } from '../../lib/problem.ts'
import { noteActivity } from '../activity.ts'
import { transaction } from '../database.ts'
import { tellEvent } from '../deploy/events.ts'
import { everyTenant } from '../tenant-scope.ts'
import { acceptRenewal } from './certificate-acceptance.ts'
import { Certificate, type CertificateDocument, renewalOf } from './certificates.ts'
import { LoadBalancer } from './load-balancers.ts'

// What the platform does about certificates that expire. It looks each KEELSON_CERTIFICATE_CHECK_SEC.

const dayMs = 86_400_000
const warnDays = [30, 14, 3]

/** Begins the renewals that are due, by operations of the platform. Returns how many. */
export async function beginRenewals(now = new Date()): Promise<number> {
  const due = await Certificate.find(
    { renews_at: { $lte: now }, operation_id: null, status: { $in: ['available', 'error'] } },
    { tenant_id: 1 },
  )
    .setOptions(everyTenant)
    .lean()
  let begun = 0
  for (const { _id, tenant_id } of due) {
    try {
      await acceptRenewal({ tenant_id, id: null }, _id)
      begun++
    } catch (error) {
      // An operation has begun since, or the certificate is gone.
      const isPassed = [OperationInProgress, StateConflict, NotFound].some((kind) => error instanceof kind)
      if (!isPassed) throw error
    }
  }
  return begun
}

/** Warns of certificates that expire in 30, 14 and 3 days, once each. Returns how many warnings it wrote. */
export async function warnOfExpiry(now = new Date()): Promise<number> {
  const soon = await Certificate.find({
    not_after: { $gt: now, $lte: new Date(now.getTime() + Math.max(...warnDays) * dayMs) },
    status: { $in: ['available', 'error'] },
  })
    .setOptions(everyTenant)
    .lean()
  let written = 0
  for (const certificate of soon) if (await warn(certificate, now)) written++
  return written
}

async function warn(certificate: CertificateDocument, now: Date): Promise<boolean> {
  const { _id, tenant_id, name, fingerprint, source, not_before, not_after, warned_days } = certificate
  if (!not_before || !not_after) return false
  // A certificate of a few days is renewed in time, although its end is always near.
  if (source === 'acme' && renewalOf(not_before, not_after) > now) return false
  const left = (not_after.getTime() - now.getTime()) / dayMs
  const reached = Math.min(...warnDays.filter((days) => left <= days))
  if (warned_days !== null && warned_days <= reached) return false
  return transaction(async () => {
    const { modifiedCount } = await Certificate.updateOne(
      { _id, tenant_id, fingerprint, warned_days },
      { $set: { warned_days: reached } },
    )
    if (modifiedCount === 0) return false // another worker warned, or it was replaced
    const users = await LoadBalancer.find({ tenant_id, 'listeners.certificate_ids': _id }, { _id: 1 }).lean()
    const data = { certificate_id: _id, not_after: not_after.toISOString(), days: reached }
    const message = `The certificate ${name} expires in less than ${reached} days, on ${not_after.toISOString()}`
    for (const resource_id of [_id, ...users.map((user) => user._id)])
      await noteActivity({ tenant_id, resource_id, kind: 'certificate_expires', message, data })
    await tellEvent({ tenant_id, deploy_server_id: null, kind: 'certificate.expiring', message, data })
    return true
  })
}
