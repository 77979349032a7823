import { newId } from '../../lib/ids.ts'
import { Operation } from '../../models/operations.ts'

/** The id of an operation that stays open, of no resource. */
export async function endlessOperation(tenant_id: string): Promise<string> {
  const fields = { resource_kind: 'container', resource_id: newId(), resource_name: 'endless', verb: 'stop' }
  const workflow_id = `endless-${newId()}`
  return (await new Operation({ ...fields, tenant_id, workflow_id, state: 'running', open: true }).save())._id
}
