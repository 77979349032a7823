import { type Client, WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client'
import { TypedSearchAttributes } from '@temporalio/common'
import { platformQueue, searchAttributes } from '../lib/temporal.ts'

/** What a starter needs of an operation. */
export interface Startable {
  _id: string
  tenant_id: string
  resource_kind: string
  resource_id: string
  resource_name: string
  verb: string
  workflow_id: string
}

/** The only caller of `workflow.start`. Starting an operation twice is starting it once. */
export async function startOperation(client: Client, operation: Startable): Promise<void> {
  const { resource_kind: kind, resource_id, resource_name, verb } = operation
  try {
    await client.workflow.start(workflowType(kind, verb), {
      workflowId: operation.workflow_id,
      taskQueue: platformQueue,
      args: [operation._id],
      workflowIdReusePolicy: 'REJECT_DUPLICATE',
      workflowIdConflictPolicy: 'USE_EXISTING',
      // A worker killed in the middle of a decision is noticed after this; a decision takes milliseconds.
      workflowTaskTimeout: '5 s',
      staticSummary: `${capital(verb).replaceAll('_', ' ')} ${kind} ${resource_name}`,
      typedSearchAttributes: new TypedSearchAttributes([
        { key: searchAttributes.tenant, value: operation.tenant_id },
        { key: searchAttributes.resource, value: resource_id },
        { key: searchAttributes.kind, value: `${kind}.${verb}` },
      ]),
    })
  } catch (error) {
    // It ran to its end before: what starting it again was for.
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error
  }
}

/** Passes the wish to end on. One that has not started, or is over, needs nothing. */
export async function cancelOperation(client: Client, workflowId: string): Promise<void> {
  try {
    await client.workflow.getHandle(workflowId).cancel()
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error
  }
}

/** `container`, `create` → `createContainer`; `container`, `attach_disk` → `attachDiskContainer`. */
export function workflowType(kind: string, verb: string): string {
  const [first = '', ...others] = `${verb}_${kind}`.split('_')
  return first + others.map(capital).join('')
}

const capital = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1)
