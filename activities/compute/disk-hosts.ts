import { ApplicationFailure } from '@temporalio/activity'
import type { Instance } from '../../models/compute/instance-kinds.ts'
import { placeElsewhere } from '../../models/compute/placement.ts'
import { arrive, heldBy } from '../../models/compute/reservations.ts'
import { disksOf, hostOfDisks } from '../../models/storage/attachments.ts'
import { permanently } from '../failures.ts'

// An instance runs where its disks are.

/** Where its disks are; null when it has none. Throws when they are apart, or one is on its way elsewhere. */
export async function readyDisks({ kind, instance }: Instance): Promise<string | null> {
  if (instance.disks.length === 0) return null // so it is for most, and costs them no query
  const disks = await disksOf(instance)
  if (disks.some(({ status }) => status === 'migrating'))
    throw ApplicationFailure.nonRetryable(`A disk of the ${kind.title} is migrating`, 'disk_migrating')
  return permanently(() => hostOfDisks(instance))
}

/**
 * Lets an instance that rests follow its disks, which were migrated meanwhile: it has room there now, and what is left of
 * it where it was goes at that host's next report. Returns whether it had to.
 */
export async function followDisks({ kind, instance }: Instance, hostId: string): Promise<boolean> {
  const { _id, tenant_id } = instance
  const { host_id } = await heldBy(_id)
  if (host_id === null || host_id === hostId) return false
  if (kind.moves_whole) {
    const detail = `The ${kind.title}’s disks are on another host than its root disk: migrate them back, or detach them`
    throw ApplicationFailure.nonRetryable(detail, 'disk_elsewhere')
  }
  await placeElsewhere([_id], { hostId })
  await arrive(_id)
  await kind.model.updateOne({ _id, tenant_id }, { $set: { host_id: hostId } })
  return true
}

/** Its disks are where it is, and that host answers: else they cannot come along. */
export async function needsDisksThere({ kind, instance }: Instance, from: string | null): Promise<void> {
  const there = await permanently(() => hostOfDisks(instance))
  if (there === null || there === from) return
  if (from === null) {
    const detail = `The ${kind.title}’s disks are on a host that does not answer: detach them, or wait for the host`
    throw ApplicationFailure.nonRetryable(detail, 'disks_unreachable')
  }
  const detail = `The ${kind.title}’s disks are on another host; it moves there at its next start`
  throw ApplicationFailure.nonRetryable(detail, 'disk_elsewhere')
}
