import { z } from 'zod'
import { Operation, type OperationDocument, operationStates } from '../models/operations.ts'
import { requestCancel } from '../models/operation-cancels.ts'
import { everyTenant } from '../models/tenant-scope.ts'
import { operationEnds } from '../models/operation-watch.ts'
import type { DatabaseImages } from '../models/deploy/engines/index.ts'
import type { DeployMachineKind } from '../models/deploy/machine-providers.ts'
import type { Embeddings } from '../models/retrieval/embeddings.ts'
import type { Outbound } from '../lib/outbound.ts'
import type { Party } from '../lib/parties.ts'
import type { MailTopic } from './mail/topic.ts'
import { byId, closed, Id, Timestamp, time, timeOrNull } from './fields.ts'
import { list } from './list.ts'
import { operation } from './operation.ts'
import { ProblemView } from './problems.ts'

/** What the api role provides to the operations: its URL, Temporal and its UI, the mail topic. */
export interface OperationsContext {
  apiUrl: string
  cancel: (workflowId: string) => void
  /** Tells the workflow of a run that a node's question is decided. */
  tellOfDecision?: (runId: string, node: string) => void
  /** The keys of a host's payloads, as the text of a key file. */
  codecKeysOf?: (party: Party) => string
  workflowUrl: (workflowId: string) => string
  /** The domain of deploy servers' applications. Default: `localhost`. */
  appsDomain?: string
  /** What the machines of new deploy servers may be, the preferred first. Default: `vm`, `container`. */
  machineKinds?: readonly DeployMachineKind[]
  /** Says which URLs of tenants are refused. Default: none is. */
  outbound?: Pick<Outbound, 'faultOf'>
  /** The image of registries, and those on which generated Dockerfiles are based. */
  buildImages?: BuildImages
  /** The images of databases, instead of the public ones. Default: none. */
  databaseImages?: DatabaseImages
  /** The platform's own calls of the model gateway. */
  embeddings?: Embeddings
  /** The SNS topic whose mail notifications are accepted. */
  mailTopic?: MailTopic | null
}

export interface BuildImages {
  registry: string
  base: Record<string, string>
  /** Without it, the platform generates Dockerfiles itself. */
  nixpacks?: { image: string; base_image: string | null } | null
}

const OperationView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    resource_kind: z.string(),
    resource_id: Id,
    resource_name: z.string(),
    verb: z.string(),
    state: z.enum(operationStates),
    step: z.string().nullable().describe('The current step, in plain words'),
    error: ProblemView.nullable(),
    parent_id: Id.nullable().describe('The operation of which this one is a part'),
    requested_by: Id.nullable().describe(
      'The user, API client or deploy server; null when the platform itself began it',
    ),
    cancel_requested_at: Timestamp.nullable(),
    workflow_id: z.string(),
    workflow_url: z.url().describe('Link to the Temporal UI, for operators'),
    created_at: Timestamp,
    updated_at: Timestamp,
    started_at: Timestamp.nullable(),
    ended_at: Timestamp.nullable(),
  })
  .meta({ id: 'Operation' })

/** The HTTP operations on operations. */
export function makeOperations({ cancel, workflowUrl }: OperationsContext) {
  const toView = (document: OperationDocument): z.output<typeof OperationView> => ({
    id: document._id,
    tenant_id: document.tenant_id,
    resource_kind: document.resource_kind,
    resource_id: document.resource_id,
    resource_name: document.resource_name,
    verb: document.verb,
    state: document.state,
    step: document.step ?? null,
    error: document.error,
    parent_id: document.parent_id ?? null,
    requested_by: document.requested_by,
    cancel_requested_at: timeOrNull(document.cancel_requested_at),
    workflow_id: document.workflow_id,
    workflow_url: workflowUrl(document.workflow_id),
    created_at: time(document.created_at),
    updated_at: time(document.updated_at),
    started_at: timeOrNull(document.started_at),
    ended_at: timeOrNull(document.ended_at),
  })

  return [
    list({
      path: '/api/v1/operations',
      permission: 'operations:read',
      summary: 'List operations; with `parent_id`, only the children of that operation',
      model: Operation,
      view: OperationView,
      toView,
      scope: (caller) => ({ tenant_id: caller.tenant_id }),
    }),

    list({
      path: '/api/v1/platform/operations',
      permission: 'platform:operations',
      summary: 'List the operations of all tenants',
      model: Operation,
      view: OperationView,
      toView,
      scope: () => ({}), // of all tenants, for operators
      options: everyTenant,
    }),

    operation({
      method: 'GET',
      path: '/api/v1/operations/{id}',
      permission: 'operations:read',
      summary: 'Get an operation, at once or when it ends',
      lasts: 'wait',
      params: byId,
      query: z.strictObject({
        wait: z.coerce
          .number()
          .min(0)
          .max(60)
          .default(0)
          .describe('Seconds to wait for the operation to end'),
      }),
      responses: { 200: OperationView },
      handle: async ({ caller, params, query, http: { response } }) => {
        const ms = query.wait * 1000
        return toView(await operationEnds.awaitEnd(caller.tenant_id, params.id, ms, closed(response)))
      },
    }),

    operation({
      method: 'POST',
      path: '/api/v1/operations/{id}/cancel',
      permission: 'operations:update',
      summary: 'Cancel an operation and its children, and undo what they have done',
      params: byId,
      responses: { 202: OperationView },
      handle: async ({ caller, params }) => {
        const document = await requestCancel(caller.tenant_id, params.id)
        cancel(document.workflow_id)
        return { operation_id: document._id, body: toView(document) }
      },
    }),
  ]
}
