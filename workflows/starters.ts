import { type Client, WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client'
import {
  decisionSignal,
  runStartOptions,
  runWorkflowId,
  type Startable,
  type StartableRun,
  startOptions,
  uploadSignal,
  workflowType,
} from '../lib/operation-workflows.ts'

/** Starts an operation's workflow. Idempotent. */
export const startOperation = (client: Client, operation: Startable): Promise<void> =>
  start(client, workflowType(operation), startOptions(operation))

/** Starts the workflow of a run of an AI workflow. Idempotent. */
export const startRun = (client: Client, run: StartableRun): Promise<void> =>
  start(client, 'runAiWorkflow', runStartOptions(run))

/** The only caller of `workflow.start`. */
async function start(
  client: Client,
  type: string,
  options: ReturnType<typeof startOptions | typeof runStartOptions>,
): Promise<void> {
  try {
    await client.workflow.start(type, { ...options, workflowIdConflictPolicy: 'USE_EXISTING' })
  } catch (error) {
    // The workflow has already run to its end.
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error
  }
}

/** Tells the workflow that waits for an upload that it is whole, or over. It also looks by itself. */
export const tellOfUpload = (client: Client, workflowId: string): Promise<void> =>
  tell(client, workflowId, uploadSignal)

/** Tells the workflow of a run that the question of one of its nodes is decided. Does nothing if it has ended. */
export const tellOfDecision = (client: Client, runId: string): Promise<void> =>
  tell(client, runWorkflowId(runId), decisionSignal)

async function tell(client: Client, workflowId: string, signal: string): Promise<void> {
  try {
    await client.workflow.getHandle(workflowId).signal(signal)
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
