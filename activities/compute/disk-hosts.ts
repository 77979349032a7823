import { ApplicationFailure } from '@temporalio/activity'
import type { Instance } from '../../models/compute/instance-kinds.ts'
import { placeElsewhere } from '../../models/compute/placement.ts'
import { arrive, heldBy } from '../../models/compute/reservations.ts'
import { disksOf, hostOfDisks } from '../../models/storage/attachments.ts'
import { permanently } from '../failures.ts'

// An instance runs on the host of its disks.

/** The host of the instance's disks, or null without disks. Throws if they are on several hosts or one is migrating. */
export async function readyDisks({ kind, instance }: Instance): Promise<string | null> {
  if (instance.disks.length === 0) return null // the usual case: saves the query
  const disks = await disksOf(instance)
  if (disks.some(({ status }) => status === 'migrating'))
    throw ApplicationFailure.nonRetryable(`A disk of the ${kind.title} is migrating`, 'disk_migrating')
  return permanently(() => hostOfDisks(instance))
}

/**
 * Moves the placement of a stopped instance to the host to which its disks were migrated, and reserves room there. The
 * former host removes what is left at its next report. Returns whether the instance moved.
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

/** Throws unless the instance's disks are on its host and that host answers: otherwise they cannot move with it. */
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
