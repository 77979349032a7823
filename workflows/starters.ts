import { type Client, WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client'
import { type Startable, startOptions, workflowType } from '../lib/operation-workflows.ts'

/** The only caller of `workflow.start`. Starting an operation twice is starting it once. */
export async function startOperation(client: Client, operation: Startable): Promise<void> {
  try {
    await client.workflow.start(workflowType(operation), {
      ...startOptions(operation),
      workflowIdConflictPolicy: 'USE_EXISTING',
    })
  } catch (error) {
    // It ran to its end before: what starting it again was for.
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error
  }
}

/** Asks a workflow to end. One that has not started, or is over, needs nothing. */
export async function cancelOperation(client: Client, workflowId: string): Promise<void> {
  try {
    await client.workflow.getHandle(workflowId).cancel()
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error
  }
}
