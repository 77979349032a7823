import { takes } from '../../lib/ai/canary.ts'
import { Problem } from '../../lib/problem.ts'
import { AiDeployment, type AiDeploymentDocument, notDeployed } from './deployments.ts'

/** The deployments that a run may go to: the first whose version takes its input. */
export type Routes = [AiDeploymentDocument, ...AiDeploymentDocument[]]

/**
 * A run of this bucket goes to the canary, if that is ready and its weight takes the bucket, and else to the primary. An input
 * that does not fit the canary's version goes to the primary, too: a canary refuses nothing. With a `version`, it goes to the one
 * of the two that has it. Throws `not_deployed` without a primary that is ready, or without the version.
 */
export async function routesOf(
  { _id: workflow_id, tenant_id }: { _id: string; tenant_id: string },
  bucket: number,
  version: number | null = null,
): Promise<Routes> {
  const roles = ['primary', 'canary'] as const
  const there = await AiDeployment.find({ tenant_id, workflow_id, role: { $in: roles } }).lean()
  const [primary, canary] = roles.map((role) => there.find((one) => one.role === role))
  if (primary?.status !== 'ready') throw notDeployed(primary?.status ?? null)
  if (version !== null) {
    const its = [primary, canary].find((one) => one?.status === 'ready' && one.version === version)
    if (!its) throw versionNotDeployed(version)
    return [its]
  }
  const isTaken = canary?.status === 'ready' && takes(canary.canary?.weight ?? 0, bucket)
  return isTaken ? [canary, primary] : [primary]
}

const versionNotDeployed = (version: number): Problem =>
  new Problem(
    409,
    'not_deployed',
    'The version is not deployed',
    `Version ${version} has no deployment that is ready`,
  )

export const isSame = (routes: Routes, others: Routes): boolean =>
  routes.length === others.length && routes.every(({ _id }, at) => _id === others[at]?._id)
