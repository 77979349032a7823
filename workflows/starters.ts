import { type Client, WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client'
import { type Startable, startOptions, uploadSignal, workflowType } from '../lib/operation-workflows.ts'

/** Starts an operation's workflow. Idempotent. The only caller of `workflow.start`. */
export async function startOperation(client: Client, operation: Startable): Promise<void> {
  try {
    await client.workflow.start(workflowType(operation), {
      ...startOptions(operation),
      workflowIdConflictPolicy: 'USE_EXISTING',
    })
  } catch (error) {
    // The workflow has already run to its end.
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error
  }
}

/** Tells the workflow that waits for an upload that it is whole, or over. It also looks by itself. */
export async function tellOfUpload(client: Client, workflowId: string): Promise<void> {
  try {
    await client.workflow.getHandle(workflowId).signal(uploadSignal)
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error
  }
}

/** Cancels a workflow. Does nothing if it has not started or has ended. */
export async function cancelOperation(client: Client, workflowId: string): Promise<void> {
  try {
    await client.workflow.getHandle(workflowId).cancel()
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error
  }
}
