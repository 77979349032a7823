import { Activity, noteActivity } from '../activity.ts'

// While output is lost, every piece tells of it. An owner's feed tells every ten minutes, or every day.
const sometimesMs = 600_000
const dailyMs = 86_400_000

interface Owner {
  _id: string
  tenant_id: string
}

/** Notes in the owner's activity feed that its host dropped output, at most every ten minutes. */
export const noteGap = (owner: Owner): Promise<void> =>
  noteOnceIn(
    sometimesMs,
    owner,
    'output_dropped',
    'Some output may be lost: it came faster than it could be archived, the archive was unavailable or full for too long, or the host’s disk was full',
  )

/** Notes there that archived output was dropped for the tenant's limit, at most once a day. */
export const noteCut = (owner: Owner): Promise<void> =>
  noteOnceIn(
    dailyMs,
    owner,
    'archive_cut',
    'The tenant’s archived output has reached max_archive_gib: the oldest output is removed, including some of this resource',
  )

async function noteOnceIn(
  periodMs: number,
  { _id, tenant_id }: Owner,
  kind: string,
  message: string,
): Promise<void> {
  const recent = { time: { $gt: new Date(Date.now() - periodMs) } }
  if (await Activity.exists({ tenant_id, resource_id: _id, kind, ...recent })) return
  await noteActivity({ tenant_id, resource_id: _id, kind, message, data: {} })
}
