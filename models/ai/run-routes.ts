import { takes } from '../../lib/ai/canary.ts'
import { AiDeployment, type AiDeploymentDocument, notDeployed } from './deployments.ts'

/** The deployments that a run may go to: the first whose version takes its input. */
export type Routes = [AiDeploymentDocument, ...AiDeploymentDocument[]]

/**
 * A run of this bucket goes to the canary, if that is ready and its weight takes the bucket, and else to the primary. An input
 * that does not fit the canary's version goes to the primary, too: a canary refuses nothing. Throws `not_deployed` without a
 * primary that is ready.
 */
export async function routesOf(
  { _id: workflow_id, tenant_id }: { _id: string; tenant_id: string },
  bucket: number,
): Promise<Routes> {
  const roles = ['primary', 'canary'] as const
  const there = await AiDeployment.find({ tenant_id, workflow_id, role: { $in: roles } }).lean()
  const [primary, canary] = roles.map((role) => there.find((one) => one.role === role))
  if (primary?.status !== 'ready') throw notDeployed(primary?.status ?? null)
  const isTaken = canary?.status === 'ready' && takes(canary.canary?.weight ?? 0, bucket)
  return isTaken ? [canary, primary] : [primary]
}

export const isSame = (routes: Routes, others: Routes): boolean =>
  routes.length === others.length && routes.every(({ _id }, at) => _id === others[at]?._id)
