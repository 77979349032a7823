import { NotFound, Problem } from '../lib/problem.ts'
import { isRequestedBy } from '../models/operations.ts'
import type { DeployCaller, Operation } from './operation.ts'

const itself = '/api/v1/deploy-servers/{id}'
const machines = `${itself}/machines/`
const operations = '/api/v1/operations/{id}'

/**
 * Keeps a deploy server's own credentials to what is below that deploy server: they may read it, do what its
 * permissions allow below it but for its machines, and follow and cancel the operations that they began. The router asks this before each
 * handler, so that no handler can forget it. Throws NotFound for another deploy server, as for an unknown one.
 */
export async function confine(
  { id, tenant_id }: DeployCaller,
  { method, path }: Pick<Operation, 'method' | 'path'>,
  params: Record<string, unknown>,
): Promise<void> {
  if (path === operations || path.startsWith(`${operations}/`)) {
    if (await isRequestedBy(tenant_id, String(params['id']), id)) return
    throw new NotFound('operation')
  }
  const isRead = path === itself && method === 'GET'
  const isBelow = isRead || (path.startsWith(`${itself}/`) && !path.startsWith(machines))
  if (!isBelow)
    throw new Problem(
      403,
      'outside_deploy_server',
      'Outside the deploy server',
      'These credentials reach only their own deploy server',
    )
  if (params['id'] !== id) throw new NotFound('deploy server')
}
