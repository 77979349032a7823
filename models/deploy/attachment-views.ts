import type { InstanceDocument } from '../compute/instances.ts'
import { Path, type PathDocument } from '../network/paths.ts'
import { type AttachmentDocument, attachmentsOf } from './attachments.ts'
import { Database } from './databases.ts'

/** What is shown of an attachment beside its record. */
export interface SeenAttachment {
  attachment: AttachmentDocument
  /** The name of the database. */
  database: string
  path: PathDocument
  /** The instance runs with the config var. */
  applied: boolean
}

/** The attached databases of an instance. */
export async function seenAttachments(instance: InstanceDocument): Promise<SeenAttachment[]> {
  const { tenant_id, status, pending_changes } = instance
  const attachments = await attachmentsOf(instance)
  const [databases, paths] = await Promise.all([
    Database.find({ tenant_id, _id: { $in: attachments.map((one) => one.database_id) } }, { name: 1 }).lean(),
    Path.find({ tenant_id, _id: { $in: attachments.map(({ _id }) => _id) } }).lean(),
  ])
  const runsWithVars = status === 'running' && !pending_changes.includes('config_vars')
  return attachments.flatMap((attachment) => {
    const database = databases.find(({ _id }) => _id === attachment.database_id)
    const path = paths.find(({ _id }) => _id === attachment._id)
    if (!database || !path) return []
    const applied = runsWithVars && attachment.status === 'attached'
    return [{ attachment, database: database.name, path, applied }]
  })
}
