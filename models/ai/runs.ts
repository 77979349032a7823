import mongoose, { type PipelineStage, Schema } from 'mongoose'
import { NotFound, Problem, StateConflict } from '../../lib/problem.ts'
import { afterCommit } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import type { StoredValue } from './run-values.ts'

export const runStates = ['queued', 'running', 'succeeded', 'failed', 'cancelled'] as const
export type RunState = (typeof runStates)[number]

/** What started it. */
export const runTriggers = ['manual', 'webhook', 'workflow', 'eval', 'retry', 'schedule'] as const
export type RunTrigger = (typeof runTriggers)[number]

/** The node, or item of a map, of another run whose part a run is, and its attempt. */
export interface RunParent {
  run_id: string
  node: string
  item: number | null
  attempt: number
}

/** Which attempt at an eval case a run is. */
export interface RunEval {
  eval_id: string
  case_id: string
  /** From 1 on. */
  repeat: number
}

/** Why a run failed. `node`: whose failure ended it. */
export interface RunError {
  code: string
  message: string
  node: string | null
}

/**
 * A run of a deployed version. Not an operation: it holds no resource, and a workflow may have thousands. Its workflow in
 * Temporal has the id of `runWorkflowId` (lib/operation-workflows.ts).
 */
export interface AiRunDocument {
  /** UUIDv7: the history is in this order. */
  _id: string
  tenant_id: string
  workflow_id: string
  deployment_id: string
  version: number
  spec_sha256: string
  trigger: RunTrigger
  /** Of the trigger `eval` alone. */
  eval?: RunEval
  /** What the bucket is made of; null: the run's id. */
  canary_key: string | null
  /** Which deployment takes the run, once there are two (lib/ai/canary.ts). */
  bucket: number
  status: RunState
  /** True while queued or running, else absent. */
  open?: true
  /** True until its workflow has been started in Temporal. */
  undispatched?: true
  cancel_requested_at: Date | null
  requested_by: string | null
  /** Absent: it is no part of another run. `parent_key` names it in one text. */
  parent?: RunParent
  parent_key?: string
  /** How many runs it is within, itself included. Absent: 1. */
  depth?: number
  /** Changes with each run that becomes a part of it: the acceptance contends with its end. */
  children?: number
  /** Of a retry: the run that it retries, and those that that one retried, the latest first. */
  former_runs?: string[]
  /** JSON of at most 1 MiB, as readers see it. */
  input_json: string
  /** The whole input, sealed. Absent: nothing of it is redacted. */
  whole_input?: StoredValue
  /** As readers see it. */
  output: StoredValue | null
  whole_output?: StoredValue
  /** `some`: as its version says. `all`: it was given redacted values of another run. Absent: nothing. It has a key then. */
  redacts?: 'some' | 'all'
  /** Of all outputs of its nodes, and its own. */
  output_bytes: number
  error: RunError | null
  started_at: Date | null
  ended_at: Date | null
  created_at: Date
  updated_at: Date
}

const schema = new Schema<AiRunDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    workflow_id: { type: String, required: true },
    deployment_id: { type: String, required: true },
    version: { type: Number, required: true },
    spec_sha256: { type: String, required: true },
    trigger: { type: String, required: true, enum: runTriggers },
    eval: Schema.Types.Mixed,
    canary_key: { type: String, default: null },
    bucket: { type: Number, required: true },
    status: { type: String, required: true, enum: runStates },
    open: Boolean,
    undispatched: Boolean,
    cancel_requested_at: { type: Date, default: null },
    requested_by: { type: String, default: null },
    parent: Schema.Types.Mixed,
    parent_key: String,
    depth: Number,
    children: Number,
    former_runs: { type: [String], default: undefined },
    input_json: { type: String, required: true },
    whole_input: Schema.Types.Mixed,
    output: { type: Schema.Types.Mixed, default: null },
    whole_output: Schema.Types.Mixed,
    redacts: { type: String, enum: ['some', 'all'] },
    output_bytes: { type: Number, default: 0 },
    error: { type: Schema.Types.Mixed, default: null },
    started_at: { type: Date, default: null },
    ended_at: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'ai_runs' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, workflow_id: 1, _id: -1 })
schema.index({ undispatched: 1, created_at: 1 }, { partialFilterExpression: { undispatched: true } })
schema.index({ ended_at: 1 })
schema.index({ deployment_id: 1, open: 1 })
schema.index({ parent_key: 1 }, { unique: true, partialFilterExpression: { parent_key: { $exists: true } } })
schema.index(
  { tenant_id: 1, 'parent.run_id': 1, open: 1 },
  { partialFilterExpression: { parent_key: { $exists: true } } },
)
// All that is read of ended runs after each run of a canary (canary-looks.ts), and for metrics (run-metrics.ts): the runs
// themselves may be large.
const read = { status: 1, started_at: 1, trigger: 1, _id: 1 } as const
schema.index({ tenant_id: 1, deployment_id: 1, ended_at: -1, ...read })
schema.index({ tenant_id: 1, workflow_id: 1, ended_at: -1, deployment_id: 1, version: 1, ...read })
// The dispatcher queries these every second and every half minute.
schema.index({ cancel_requested_at: 1 }, { partialFilterExpression: { open: true } })
schema.index({ open: 1, created_at: 1 }, { partialFilterExpression: { open: true } })
export const AiRun = mongoose.model<AiRunDocument>('AiRun', schema)

/** Starts accepted runs. The api role sets it. */
let dispatch: (run: AiRunDocument) => void = () => {}
export const onRunAccepted = (start: (run: AiRunDocument) => void): void => {
  dispatch = start
}

/**
 * Inserts a run in the transaction that accepts it. Its workflow is started after the commit; that of a part of another run, by
 * the workflow of that one.
 */
export async function insertRun(
  fields: Omit<
    AiRunDocument,
    | 'status'
    | 'open'
    | 'undispatched'
    | 'cancel_requested_at'
    | 'output'
    | 'output_bytes'
    | 'error'
    | `${'started' | 'ended' | 'created' | 'updated'}_at`
  >,
): Promise<AiRunDocument> {
  const begun = { status: 'queued' as const, open: true as const }
  if (fields.parent) return (await new AiRun({ ...fields, ...begun }).save()).toObject()
  const made = await new AiRun({ ...fields, ...begun, undispatched: true }).save()
  const run = made.toObject()
  afterCommit(() => dispatch(run))
  return run
}

/** What most readers do without: it may have a MiB. */
export type RunSummary = Omit<AiRunDocument, 'input_json'>
export const withoutInput = { input_json: 0, 'whole_input.json': 0 } as const

/** A workflow's run. Throws NotFound. */
export async function runOf(tenant_id: string, workflow_id: string, _id: string): Promise<AiRunDocument> {
  const run = await AiRun.findOne({ _id, tenant_id, workflow_id }).lean()
  if (!run) throw new NotFound('run')
  return run
}

/** A run by its id; null if it is gone. */
export const findRun = ({
  _id,
  tenant_id,
}: Pick<AiRunDocument, '_id' | 'tenant_id'>): Promise<RunSummary | null> =>
  AiRun.findOne({ _id, tenant_id }, withoutInput).lean()

/** The same without its input. Throws NotFound. */
export async function runSummaryOf(tenant_id: string, workflow_id: string, _id: string): Promise<RunSummary> {
  const run = await AiRun.findOne({ _id, tenant_id, workflow_id }, withoutInput).lean()
  if (!run) throw new NotFound('run')
  return run
}

/** A workflow's runs before this one, the newest first. */
export const runsBefore = (
  { tenant_id, _id: workflow_id }: { tenant_id: string; _id: string },
  before: string | null,
  limit: number,
): Promise<RunSummary[]> =>
  AiRun.find({ tenant_id, workflow_id, ...(before === null ? {} : { _id: { $lt: before } }) }, withoutInput)
    .sort({ _id: -1 })
    .limit(limit)
    .lean()

/** Marks the run as running, unless it has ended, and returns it. Null: it is gone. */
export async function beginRun(_id: string): Promise<RunSummary | null> {
  const begun = await AiRun.findOneAndUpdate(
    { _id, open: true },
    [
      { $set: { status: 'running', started_at: { $ifNull: ['$started_at', '$$NOW'] } } },
      { $unset: 'undispatched' },
    ] as PipelineStage.Set[],
    { returnDocument: 'after', updatePipeline: true, projection: withoutInput },
  )
    .setOptions(everyTenant)
    .lean()
  return begun ?? AiRun.findOne({ _id }, withoutInput).setOptions(everyTenant).lean()
}

/** Records that a run is to be cancelled. Throws NotFound, and StateConflict if it has ended. */
export async function requestRunCancel(
  tenant_id: string,
  workflow_id: string,
  _id: string,
): Promise<AiRunDocument> {
  const asked = await AiRun.findOneAndUpdate(
    { _id, tenant_id, workflow_id, open: true },
    [
      { $set: { cancel_requested_at: { $ifNull: ['$cancel_requested_at', '$$NOW'] } } },
    ] as PipelineStage.Set[],
    { returnDocument: 'after', updatePipeline: true },
  ).lean()
  if (asked) return asked
  const { status } = await runOf(tenant_id, workflow_id, _id)
  throw new StateConflict('cancel the run', status)
}

/** A workflow with open runs is not deleted. */
export class RunsInFlight extends Problem {
  constructor(runs_open: number) {
    super(409, 'runs_in_flight', 'The workflow has runs in flight', `${runs_open} of its runs are open`, {
      extensions: { runs_open },
    })
  }
}

const ago = (ms: number): Date => new Date(Date.now() - ms)

/** Records that Temporal has the workflows of these runs. */
export async function markRunsDispatched(ids: string[]): Promise<void> {
  await AiRun.updateMany(
    { _id: { $in: ids }, undispatched: true },
    { $unset: { undispatched: 1 } },
  ).setOptions(everyTenant)
}

/** Runs that were accepted more than `olderMs` ago and are not in Temporal, oldest first. */
export const findUndispatchedRuns = (olderMs: number, limit: number): Promise<RunSummary[]> =>
  AiRun.find({ undispatched: true, created_at: { $lt: ago(olderMs) } }, withoutInput)
    .setOptions(everyTenant)
    .sort({ created_at: 1 })
    .limit(limit)
    .lean()

/** Open runs whose cancellation was requested more than `olderMs` ago. */
export const findCancellingRuns = (olderMs: number): Promise<RunSummary[]> =>
  AiRun.find({ open: true, cancel_requested_at: { $lt: ago(olderMs) } }, withoutInput)
    .setOptions(everyTenant)
    .lean()

/** Open runs that are in Temporal and were accepted more than `olderMs` ago. */
export const findRunsOpenSince = (olderMs: number): Promise<RunSummary[]> =>
  AiRun.find(
    { open: true, undispatched: { $exists: false }, created_at: { $lt: ago(olderMs) } },
    withoutInput,
  )
    .setOptions(everyTenant)
    .lean()

/** Some open runs of a deployment. */
export const openRunsOf = (deployment_id: string, limit: number): Promise<RunSummary[]> =>
  AiRun.find({ deployment_id, open: true }, withoutInput).setOptions(everyTenant).limit(limit).lean()

/** How many runs of a deployment are open. */
export const countOpenRuns = (deployment_id: string): Promise<number> =>
  AiRun.countDocuments({ deployment_id, open: true }).setOptions(everyTenant).exec()

/** The ids of the runs that ended with their deployment, by the code of their error. */
export async function runsEndedBy(deployment_id: string, code: string): Promise<string[]> {
  const ended = await AiRun.find({ deployment_id, 'error.code': code }, { _id: 1 })
    .setOptions(everyTenant)
    .lean()
  return ended.map(({ _id }) => _id)
}
