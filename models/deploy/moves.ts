import type { ApplicationDocument } from './applications.ts'
import { Deployment, type DeploymentDocument } from './deployments.ts'

// Moves of an application to other workers, by the platform.

type OfApplication = Pick<ApplicationDocument, '_id' | 'tenant_id'>

const firstPauseMs = 60_000
/** What the workers have no room for now may have room later, and nobody wants to wait long for it. */
const longestPauseMs = 15 * 60_000
/** After so many failures the pause is the longest. */
const mostCounted = 5

/**
 * Whether an application may be moved away from a worker that has been lost since then: no move is under way, and the pause after
 * the last one that failed is over. It doubles with each failure.
 */
export async function mayMoveAgain(application: OfApplication, since: Date, now: number): Promise<boolean> {
  const moves = await movesSince(application, since)
  if (moves.some(({ operation_id }) => operation_id !== null)) return false
  const failures = moves.filter(({ status }) => status !== 'succeeded')
  const [last] = failures
  if (!last) return true
  const pauseMs = Math.min(firstPauseMs * 2 ** (failures.length - 1), longestPauseMs)
  return now >= (last.ended_at ?? last.created_at).getTime() + pauseMs
}

/** Whether another move of the application has failed since then. */
export async function hasFailedSince(
  { _id, app_id, tenant_id }: DeploymentDocument,
  since: Date,
): Promise<boolean> {
  const moves = await movesSince({ _id: app_id, tenant_id }, since)
  return moves.some((move) => move._id !== _id && ['failed', 'error'].includes(move.status))
}

/** The newest first. A move that made way for another deployment does not count. */
const movesSince = ({ _id: app_id, tenant_id }: OfApplication, since: Date): Promise<DeploymentDocument[]> =>
  Deployment.find({ tenant_id, app_id, kind: 'move', superseded: false, created_at: { $gte: since } })
    .sort({ number: -1 })
    .limit(mostCounted)
    .lean()
