import { Activity, noteActivity } from '../activity.ts'
import type { LogOwner } from './log-owners.ts'

const kind = 'output_dropped'
// While output is being dropped, every file arrives with a gap before it.
const saidEveryMs = 600_000

/** Notes in the owner's activity feed that its host dropped output, at most every ten minutes. */
export async function noteGap({ _id, tenant_id }: LogOwner): Promise<void> {
  const recent = { time: { $gt: new Date(Date.now() - saidEveryMs) } }
  if (await Activity.exists({ tenant_id, resource_id: _id, kind, ...recent })) return
  const message =
    'Output came faster than it could be archived, or the archive was away for too long: some may be lost'
  await noteActivity({ tenant_id, resource_id: _id, kind, message, data: {} })
}
