import mongoose, { type PipelineStage, Schema } from 'mongoose'
import { newId } from '../lib/ids.ts'
import { metrics } from '../lib/metrics.ts'
import type { Startable } from '../lib/operation-workflows.ts'
import {
  NotFound,
  OperationInProgress,
  Problem,
  type ProblemDocument,
  StateConflict,
} from '../lib/problem.ts'
import { forgetActivity } from './activity.ts'
import { countedByTenant } from './counters.ts'
import { afterCommit, transaction } from './database.ts'
import { needUnmanaged } from './managed.ts'
import { noteEnd } from './operation-feed.ts'
import {
  documentOptions,
  idField,
  named,
  type Resource,
  type ResourceDocument,
  resourceOf,
} from './resources.ts'
import { everyTenant, tenantScoped } from './tenant-scope.ts'

export const operationStates = ['pending', 'running', 'succeeded', 'failed', 'cancelled'] as const
export type OperationState = (typeof operationStates)[number]

/** One accepted piece of work. Its workflow carries it out. */
export interface OperationDocument extends Startable {
  /** What the workflow needs beside the resource. Never a secret: it goes through Temporal. */
  input: Record<string, unknown>
  state: OperationState
  /** True while pending or running, else absent: a unique index over it is the lock on the resource. */
  open?: true
  /** True until its workflow has been started in Temporal. */
  undispatched?: true
  /** The line in which it waits, instead of `undispatched` (operation-lines.ts). */
  held_in?: string
  /** The operation that this one superseded. This one waits for that workflow to end. */
  supersedes: string | null
  /** The parent operation, and this child's key in it. Absent without a parent. */
  parent_id?: string
  parent_key?: string
  requested_by: string | null
  cancel_requested_at: Date | null
  /** The resource's fields to restore if the operation fails. */
  before: { status?: string; [field: string]: unknown }
  step: string | null
  error: ProblemDocument | null
  started_at: Date | null
  ended_at: Date | null
  created_at: Date
  updated_at: Date
}

const schema = new Schema<OperationDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    resource_kind: { type: String, required: true },
    resource_id: { type: String, required: true },
    resource_name: { type: String, required: true },
    verb: { type: String, required: true },
    input: { type: Schema.Types.Mixed, default: {} },
    state: { type: String, required: true, enum: operationStates },
    open: Boolean,
    undispatched: Boolean,
    held_in: String,
    workflow_id: { type: String, required: true },
    supersedes: { type: String, default: null },
    parent_id: String,
    parent_key: String,
    requested_by: { type: String, default: null },
    cancel_requested_at: { type: Date, default: null },
    before: { type: Schema.Types.Mixed, default: {} },
    step: { type: String, default: null },
    error: { type: Schema.Types.Mixed, default: null },
    started_at: { type: Date, default: null },
    ended_at: { type: Date, default: null },
  },
  documentOptions,
)
tenantScoped(schema)
countedByTenant(schema, 'operations')
// The lock: at most one open operation per resource.
schema.index({ resource_id: 1 }, { unique: true, partialFilterExpression: { open: true } })
schema.index({ undispatched: 1, created_at: 1 }, { partialFilterExpression: { undispatched: true } })
// operation-lines.ts: who is under way in a line, and who waits in which.
schema.index(
  { tenant_id: 1, resource_kind: 1, verb: 1, held_in: 1, _id: 1 },
  { partialFilterExpression: { open: true } },
)
schema.index({ held_in: 1, _id: 1 }, { partialFilterExpression: { held_in: { $exists: true } } })
// The dispatcher queries every second and must not scan every open operation.
schema.index({ cancel_requested_at: 1 }, { partialFilterExpression: { open: true } })
schema.index({ open: 1, created_at: 1 }, { partialFilterExpression: { open: true } })
schema.index({ tenant_id: 1, created_at: -1, _id: -1 })
schema.index({ created_at: -1, _id: -1 }) // operators' list, over all tenants
schema.index({ tenant_id: 1, resource_id: 1, created_at: -1 })
// A parent accepts at most one child per key.
schema.index(
  { parent_id: 1, parent_key: 1 },
  { unique: true, partialFilterExpression: { parent_id: { $exists: true } } },
)

export const Operation = mongoose.model<OperationDocument>('Operation', schema)

/** Starts accepted operations. The api sets it. */
let dispatch: (operation: OperationDocument) => void = () => {}
export const onAccepted = (start: (operation: OperationDocument) => void): void => {
  dispatch = start
}

/** Hears of every operation that was accepted or has ended, in the process that did it. */
let changed: (operation: OperationDocument) => void = () => {}
export const onOperationChange = (listener: (operation: OperationDocument) => void): void => {
  changed = listener
}

function accepted(operation: OperationDocument): void {
  changed(operation)
  metrics.operationsAccepted.inc({ kind: operation.resource_kind, verb: operation.verb })
  if (operation.undispatched) dispatch(operation)
}

/** The parent of an operation, and the child's key in it. */
export interface Parent {
  id: string
  key: string
}

interface Request<D extends ResourceDocument, Verb extends string> {
  resource: Resource<D, Verb>
  tenantId: string
  requestedBy: string | null
  input?: Record<string, unknown>
  /** The parent's workflow starts the workflow of this operation. */
  parent?: Parent
}

export interface Accepted<D extends ResourceDocument = ResourceDocument> {
  document: D
  operation: OperationDocument
}

/**
 * Accepts the creation of a resource. `verb` defaults to `create`. Joins the caller's transaction if there is one, so
 * that quota and other reservations commit with it. Throws NameTaken.
 */
export async function acceptCreate<D extends ResourceDocument>(
  request: Request<D, string> & {
    fields: { name: string; tags: Record<string, string>; managed_by: string | null }
    id?: string
    verb?: string
  },
): Promise<Accepted<D>> {
  const { resource, tenantId, fields, id = newId(), verb = 'create' } = request
  return transaction(async () => {
    const operation = newOperation(request, id, verb)
    operation.resource_name = fields.name
    const insert = {
      ...fields,
      _id: operation.resource_id,
      tenant_id: tenantId,
      status: 'creating',
      operation_id: operation._id,
    }
    const created = new resource.model(insert)
    await named(resource.kind, fields.name, () => created.save())
    await Operation.create([operation])
    afterCommit(() => accepted(operation))
    return { document: created.toObject() as D, operation }
  }, tenantId)
}

/**
 * Accepts a verb on an existing resource. `set` holds the fields that change at once (such as `desired_state`); they
 * are restored if the operation fails. Throws NotFound, StateConflict, OperationInProgress, ManagedResource.
 */
export async function acceptVerb<D extends ResourceDocument, Verb extends string>(
  request: Request<D, Verb> & {
    id: string
    verb: NoInfer<Verb>
    set?: Partial<D>
    /** A tenant asks, who cannot change what another resource manages. */
    for_tenant?: boolean
  },
): Promise<Accepted<D>> {
  const { resource, tenantId, id, verb } = request
  const from: string[] = resource.states.from(verb)
  return transaction(async () => {
    const operation = newOperation(request, id, verb)
    const set = {
      ...request.set,
      status: resource.states.during(verb),
      status_reason: null,
      operation_id: operation._id,
      updated_at: operation.created_at,
    }
    const take = (condition: object) =>
      resource.model
        .findOneAndUpdate(
          { _id: id, tenant_id: tenantId, ...condition },
          { $set: set },
          { returnDocument: 'before', timestamps: false },
        )
        .lean<D>()
    let before = await take({ operation_id: null, status: { $in: from } })
    if (!before) {
      const cutOff = await supersede(resource, tenantId, id, verb)
      const status = cutOff.before.status ?? 'error'
      if (!from.includes(status)) throw new StateConflict(verb, status)
      operation.supersedes = cutOff._id
      before = await take({ operation_id: cutOff._id })
      if (!before) throw new NotFound(resource.kind)
      before.status = status
    }
    if (request.for_tenant) needUnmanaged(resource.title, before)
    if (verb === 'delete') await resource.mayDelete(before)
    operation.resource_name = before.name
    operation.before = { ...pick(before, Object.keys(request.set ?? {})), status: before.status }
    await Operation.create([operation])
    afterCommit(() => accepted(operation))
    return { document: { ...before, ...set }, operation }
  }, tenantId)
}

/**
 * Closes the operation that `verb` supersedes, and returns it. The new workflow ends the old one before it acts.
 * Throws NotFound, StateConflict, and OperationInProgress if the verb may not supersede the open operation.
 */
async function supersede<D extends ResourceDocument, Verb extends string>(
  resource: Resource<D, Verb>,
  tenantId: string,
  id: string,
  verb: Verb,
): Promise<OperationDocument> {
  const found = await resource.model.findOne({ _id: id, tenant_id: tenantId }).lean()
  if (!found) throw new NotFound(resource.kind)
  if (!found.operation_id) throw new StateConflict(verb, found.status)
  const theirs = { _id: found.operation_id, tenant_id: tenantId, open: true as const }
  const open = await Operation.findOne(theirs).lean()
  // The operation may be another resource's that includes this one: a move takes the disks of an instance along.
  const isItsOwn = open?.resource_id === id
  if (!open || !isItsOwn || open.verb === verb || !resource.states.supersedes(verb)) {
    throw new OperationInProgress(found.operation_id)
  }
  const error = new Problem(409, 'superseded', `Superseded by ${verb}`).document()
  await Operation.updateOne(theirs, {
    $set: { state: 'cancelled', ended_at: new Date(), error },
    $unset: { open: 1, undispatched: 1, held_in: 1 },
  })
  return open
}

// What the API accepts is smaller: its fields have bounds of their own.
const mostInputBytes = 1024 * 1024

function newOperation<D extends ResourceDocument, Verb extends string>(
  request: Request<D, Verb>,
  resourceId: string,
  verb: string,
): OperationDocument {
  const id = newId()
  const now = new Date()
  const { parent, input = {} } = request
  if (Buffer.byteLength(JSON.stringify(input)) > mostInputBytes)
    throw new Problem(
      422,
      'too_large',
      'The input of the operation is too large',
      'The input has more than 1 MiB',
    )
  return {
    _id: id,
    tenant_id: request.tenantId,
    resource_kind: request.resource.kind,
    resource_id: resourceId,
    resource_name: '',
    verb,
    input,
    state: 'pending',
    open: true,
    // The parent's workflow starts the child's.
    ...(parent ? { parent_id: parent.id, parent_key: parent.key } : { undispatched: true }),
    workflow_id: `${request.resource.kind}-${verb}-${id}`,
    supersedes: null,
    requested_by: request.requestedBy,
    cancel_requested_at: null,
    before: {},
    step: null,
    error: null,
    started_at: null,
    ended_at: null,
    created_at: now,
    updated_at: now,
  }
}

/** Marks the operation as running, unless it is closed, and returns it. Null: it is gone. */
export async function beginOperation(id: string): Promise<OperationDocument | null> {
  const begun = await Operation.findOneAndUpdate(
    { _id: id, open: true },
    [
      { $set: { state: 'running', started_at: { $ifNull: ['$started_at', '$$NOW'] } } },
      { $unset: ['undispatched', 'held_in'] },
    ] as PipelineStage.Set[],
    { returnDocument: 'after', updatePipeline: true },
  )
    .setOptions(everyTenant)
    .lean()
  return begun ?? findOperation(id)
}

/** Records the current step, in plain words for users. */
export async function noteStep(id: string, step: string): Promise<void> {
  await Operation.updateOne({ _id: id, open: true }, { $set: { step } }).setOptions(everyTenant)
}

export type Ending =
  | { state: 'succeeded'; status: string; set?: Record<string, unknown> }
  | { state: 'succeeded'; deleted: true }
  | { state: 'failed' | 'cancelled'; error: ProblemDocument; status?: string; set?: Record<string, unknown> }

/**
 * Closes the operation and settles its resource, in one transaction. Fenced: a closed operation changes nothing, and
 * the resource changes only while this operation holds it. A failure without a `status` restores the former one. Returns
 * the operation; null if it was closed.
 */
export async function endOperation(id: string, ending: Ending): Promise<OperationDocument | null> {
  return transaction(async () => {
    const error = ending.state === 'succeeded' ? null : ending.error
    const operation = await Operation.findOneAndUpdate(
      { _id: id, open: true },
      {
        $set: { state: ending.state, ended_at: new Date(), error },
        $unset: { open: 1, undispatched: 1, held_in: 1, step: 1 },
      },
    )
      .setOptions(everyTenant)
      .lean()
    if (!operation) return null
    afterCommit(() => {
      const { resource_kind: kind, verb, created_at } = operation
      const tookSec = (Date.now() - created_at.getTime()) / 1000
      metrics.operationsEnded.observe({ kind, verb, state: ending.state }, tookSec)
      changed({ ...operation, ended_at: new Date() })
    })
    const { model, comesToRest } = resourceOf(operation.resource_kind)
    const mine = { _id: operation.resource_id, tenant_id: operation.tenant_id, operation_id: id }
    if ('deleted' in ending) {
      const { deletedCount } = await model.deleteOne(mine)
      if (deletedCount > 0) await forgetActivity(mine.tenant_id, mine._id)
      return operation
    }
    const restored = ending.state === 'succeeded' ? {} : operation.before
    const settled = {
      ...restored,
      ...ending.set,
      status: ending.status ?? operation.before.status ?? 'error',
    }
    await model.updateOne(mine, {
      $set: { status_reason: error?.detail ?? error?.title ?? null, ...settled, operation_id: null },
    })
    await comesToRest?.({
      _id: operation.resource_id,
      tenant_id: operation.tenant_id,
      ended: ending.state,
    })
    await noteEnd(operation, ending)
    return operation
  })
}

const pick = (from: object, keys: string[]): Record<string, unknown> =>
  Object.fromEntries(Object.entries(from).filter(([key]) => keys.includes(key)))

/** Whether the tenant's operation was begun by this caller. */
export const isRequestedBy = async (tenant_id: string, _id: string, caller: string): Promise<boolean> =>
  (await Operation.exists({ _id, tenant_id, requested_by: caller })) !== null

/** Finds an operation of any tenant. */
export const findOperation = (id: string): Promise<OperationDocument | null> =>
  Operation.findById(id).setOptions(everyTenant).lean()

/** The workflow id of an operation of any tenant; null if there is no such operation. */
export async function workflowOf(id: string): Promise<string | null> {
  const operation = await Operation.findById(id, { workflow_id: 1 }).setOptions(everyTenant).lean()
  return operation?.workflow_id ?? null
}
