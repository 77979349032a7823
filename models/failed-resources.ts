import { Problem } from '../lib/problem.ts'
import type { Resource, ResourceDocument } from './resources.ts'

const mostFailed = 200

/**
 * Throws `too_many_failed` if 200 resources of the tenant and kind are in error. These hold no quota: without a bound of
 * their own, a tenant could fill the database with them. Kinds that tenants cannot delete, such as builds, are trimmed by
 * the platform instead (deploy/old-builds.ts).
 */
export async function needFewFailed<D extends ResourceDocument>(
  { model, title, states }: Pick<Resource<D>, 'model' | 'title' | 'states'>,
  tenant_id: string,
): Promise<void> {
  if (!states.verbs.includes('delete')) return
  const failed = await model.find({ tenant_id, status: 'error' }, { _id: 1 }).limit(mostFailed).lean()
  if (failed.length < mostFailed) return
  throw new Problem(
    409,
    'too_many_failed',
    'Too many failed resources',
    `${mostFailed} of your ${title}s are in error: delete some`,
  )
}
