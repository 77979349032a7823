import { StateConflict } from '../../lib/problem.ts'
import { deployServerResource } from '../../models/deploy/deploy-servers.ts'
import { requestCancel } from '../../models/operation-cancels.ts'
import { mine } from '../../models/resources.ts'

// What the operations on all things below a deploy server share.

interface Caller {
  tenant_id: string
}

/** The `scope` of a list of what belongs to the caller's deploy server. Throws NotFound. */
export async function inDeployServer(
  caller: Caller,
  { id }: { id: string },
): Promise<{ tenant_id: string; deploy_server_id: string }> {
  const { _id, tenant_id } = await mine(deployServerResource, caller, id)
  return { tenant_id, deploy_server_id: _id }
}

/** Has the operation that works on something end, and returns its id. Throws StateConflict if there is none. */
export async function cancelWork(
  { tenant_id }: Caller,
  { operation_id, status }: { operation_id: string | null; status: string },
  cancel: (workflowId: string) => void,
): Promise<string> {
  if (operation_id === null) throw new StateConflict('cancel', status)
  const { workflow_id } = await requestCancel(tenant_id, operation_id)
  cancel(workflow_id)
  return operation_id
}
