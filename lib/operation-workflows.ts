import { defineSearchAttributeKey, SearchAttributeType, TypedSearchAttributes } from '@temporalio/common'

// How a client or another workflow names and starts the workflow of an operation. Also runs in Temporal's sandbox.

/** All workflow code and the platform's activities run on this queue. */
export const platformQueue = 'platform'
/** The steps of documents' uploads, of which each worker of the platform has only a few under way. */
export const documentsQueue = 'documents'

/** Operators filter workflows by these in the Temporal UI. */
export const searchAttributes = {
  tenant: defineSearchAttributeKey('KeelsonTenant', SearchAttributeType.KEYWORD),
  resource: defineSearchAttributeKey('KeelsonResource', SearchAttributeType.KEYWORD),
  kind: defineSearchAttributeKey('KeelsonKind', SearchAttributeType.KEYWORD),
}

/** Tells the workflow of an artifact or document to look at its upload. */
export const uploadSignal = 'upload'

/** Tells the workflow of a run that the question of one of its nodes is decided. */
export const decisionSignal = 'decision'

/** The fields of an operation that starting its workflow needs. */
export interface Startable {
  _id: string
  tenant_id: string
  resource_kind: string
  resource_id: string
  resource_name: string
  /** `create`, `stop`, …: with the kind it names the workflow. */
  verb: string
  workflow_id: string
}

/** Starts the workflow of an operation. The workflow runs once, however often it is started. */
export const startOptions = ({ _id, workflow_id, ...operation }: Startable) => ({
  workflowId: workflow_id,
  taskQueue: platformQueue,
  args: [_id] as [string],
  workflowIdReusePolicy: 'REJECT_DUPLICATE' as const,
  workflowTaskTimeout,
  // Its tasks and its activities’ take turns with those of other tenants, however many each has.
  priority: { fairnessKey: operation.tenant_id },
  staticSummary: `${capital(operation.verb).replaceAll('_', ' ')} ${operation.resource_kind} ${operation.resource_name}`,
  typedSearchAttributes: new TypedSearchAttributes([
    { key: searchAttributes.tenant, value: operation.tenant_id },
    { key: searchAttributes.resource, value: operation.resource_id },
    { key: searchAttributes.kind, value: `${operation.resource_kind}.${operation.verb}` },
  ]),
})

/** The id in Temporal of the workflow that carries out a run of an AI workflow. */
export const runWorkflowId = (runId: string): string => `airun-${runId}`

/** The id in Temporal of the workflow that carries out the runs that are the items of a map. */
export const itemsWorkflowId = (runId: string, node: string): string => `airun-${runId}-${node}`

/** Starts the workflow of a run. It runs once, however often it is started. */
export const runStartOptions = ({ _id, tenant_id, workflow_id, version }: StartableRun) => ({
  workflowId: runWorkflowId(_id),
  taskQueue: platformQueue,
  args: [_id] as [string],
  workflowIdReusePolicy: 'REJECT_DUPLICATE' as const,
  workflowTaskTimeout,
  priority: { fairnessKey: tenant_id },
  staticSummary: `Run version ${version} of workflow ${workflow_id}`,
  typedSearchAttributes: new TypedSearchAttributes([
    { key: searchAttributes.tenant, value: tenant_id },
    { key: searchAttributes.resource, value: workflow_id },
    { key: searchAttributes.kind, value: 'ai_run' },
  ]),
})

/** The fields of a run that starting its workflow needs. */
export interface StartableRun {
  _id: string
  tenant_id: string
  workflow_id: string
  version: number
}

/** Temporal notices a killed worker after this time; a workflow task takes milliseconds. */
export const workflowTaskTimeout = '5 s'

/** The message of the failure of a workflow whose operation or run has failed with this code. */
export const failureMessage = (code: string): string => `failed: ${code}`

/** Whether the failure of a workflow tells only what is recorded, and is no fault of the platform. */
export const isRecordedFailure = (message: string): boolean =>
  message.startsWith('failed: ') && message !== failureMessage('internal')

/** `container`, `create` → `createContainer`; `container`, `attach_disk` → `attachDiskContainer`. */
export function workflowType({
  resource_kind: kind,
  verb,
}: Pick<Startable, 'resource_kind' | 'verb'>): string {
  const [first = '', ...others] = `${verb}_${kind}`.split('_')
  return first + others.map(capital).join('')
}

const capital = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1)
