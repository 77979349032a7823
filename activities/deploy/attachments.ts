import { ApplicationFailure } from '@temporalio/activity'
import { tellPart } from '../../models/compute/tell-part.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import {
  Attachment,
  type AttachmentDocument,
  beginDetaching,
  findAttachment,
  forgetAttachment,
  noteVarsChanged,
} from '../../models/deploy/attachments.ts'
import { findDatabase } from '../../models/deploy/databases.ts'
import { cutOff, reachableHostsOf } from '../../models/network/host-networks.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { answering } from '../compute/answering.ts'
import { placeOfVolumes } from './volumes.ts'

/** What a workflow knows of an attachment. */
export interface AttachmentFacts {
  database_id: string
  /** The host that has the database, if it answers. */
  database_host: string | null
  /** The host that has the instance, and so the path, if it answers. */
  path_host: string | null
  /** All hosts that answer and have members of either VPC. */
  network_hosts: string[]
}

/** Activities of attachments: short reads and writes of MongoDB. */
export const makeAttachmentActivities = () => ({
  /** Null if it is gone. */
  async attachmentFacts(id: string): Promise<AttachmentFacts | null> {
    const attachment = await findAttachment(id)
    if (!attachment) return null
    const { database_id, instance_id } = attachment
    const database = await findDatabase(database_id)
    const at = database && (await placeOfVolumes(database))
    return {
      database_id,
      database_host: await answering(at?.host_id ?? null),
      path_host: await answering(await hostOf(attachment)),
      network_hosts: await reachableHostsOf(instance_id),
    }
  },

  /** It has its user and its path: its instance gets its variable. Throws `not_found` if it has been taken away. */
  async attachmentMade(id: string): Promise<void> {
    const made = await Attachment.findOneAndUpdate(
      { _id: id, status: { $ne: 'detaching' } },
      { $set: { status: 'attached' } },
    )
      .setOptions(everyTenant)
      .lean()
    if (!made) throw ApplicationFailure.nonRetryable('The database has been deleted', 'not_found')
    await noteVarsChanged(made)
  },

  /** Its user, path and variable are not wanted any more. */
  async beginDetaching(id: string): Promise<void> {
    const attachment = await findAttachment(id)
    await beginDetaching(id)
    if (attachment?.status === 'attached') await noteVarsChanged(attachment)
  },

  /** Frees its addresses. A host that does not answer and may still have the path is cut off from both VPCs. */
  async forgetAttachment(id: string): Promise<void> {
    const attachment = await findAttachment(id)
    if (!attachment) return
    const host = await hostOf(attachment)
    if (host && !(await answering(host))) await cutOff(attachment.instance_id, host)
    await forgetAttachment(id)
  },

  /** The attachments of a database. */
  attachmentsOfDatabase: (database_id: string): Promise<string[]> =>
    Attachment.distinct('_id', { database_id }).setOptions(everyTenant),
})

export type AttachmentActivities = ReturnType<typeof makeAttachmentActivities>

async function hostOf({ instance_id }: AttachmentDocument): Promise<string | null> {
  const held = await Reservation.findById(instance_id).setOptions(everyTenant).lean()
  return held?.host_id ?? null
}

/** Detaches all databases of a deleted instance. Hosts then remove what they have of them. */
export async function detachAllOf(instance_id: string): Promise<void> {
  const attachments = await Attachment.find({ instance_id }).setOptions(everyTenant).lean()
  if (attachments.length === 0) return
  const databases = attachments.map(async ({ database_id }) => findDatabase(database_id))
  const places = (await Promise.all(databases)).map(async (database) => database && placeOfVolumes(database))
  const hosts = (await Promise.all(places)).flatMap((place) => place?.host_id ?? [])
  for (const { _id } of attachments) await forgetAttachment(_id)
  // A host that does not answer asks when it does again.
  await tellPart('database_users', [...new Set(hosts)]).catch(() => undefined)
}
