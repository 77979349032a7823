import mongoose, { Schema } from 'mongoose'
import type { AttemptEnd, EvalResult, FrozenCase } from '../../lib/ai/eval-results.ts'
import type { Comparison, SuiteVerdict } from '../../lib/ai/verdicts.ts'
import { NotFound, OperationInProgress } from '../../lib/problem.ts'
import { forgetActivity } from '../activity.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { schemaOptions } from '../schemas.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'

// Runs of a workflow's eval cases. Not the cases themselves (eval-cases.ts).

export const aiEvalStates = states({
  creating: {},
  /** It has a verdict. */
  judged: {},
  /** It ended without one: its deployment is gone. */
  stopped: {},
  cancelled: {},
  error: {},
})

/** Which deployment of a workflow is evaluated. */
export const evalTargets = ['primary', 'canary'] as const
export type EvalTarget = (typeof evalTargets)[number]

/** What a result was compared with, and how it compares. */
export interface Compared extends Comparison {
  eval_id: string
  deployment_id: string
  version: number
}

/**
 * All eval cases of a workflow, run on one deployment, as they were when it was accepted. Its operation does not hold the
 * deployment, which may be undeployed meanwhile.
 */
export interface AiEvalDocument extends ResourceDocument<StateOf<typeof aiEvalStates>> {
  workflow_id: string
  /** Of the deployment at that time. */
  role: EvalTarget
  deployment_id: string
  version: number
  spec_sha256: string
  case_set_sha256: string
  /** Of the workflow at that time. */
  latest_version: number | null
  requested_by: string | null
  /** All repeats of all cases. */
  runs: number
  runs_begun: number
  runs_ended: number
  /** Of its runs, and once it has ended also of its judges. */
  tokens: number
  cost_nano_usd: number
  /** From then on no run begins, and no attempt is recorded. */
  ended_at: Date | null
  /** Null: it has no result, or not yet. */
  verdict: SuiteVerdict['verdict'] | null
  /** The EvalResult and the Compared as JSON: names of cases are free. */
  result_json: string | null
  compared_json: string | null
}

const schema = resourceSchema<AiEvalDocument>(
  {
    workflow_id: { type: String, required: true },
    role: { type: String, required: true, enum: evalTargets },
    deployment_id: { type: String, required: true },
    version: { type: Number, required: true },
    spec_sha256: { type: String, required: true },
    case_set_sha256: { type: String, required: true },
    latest_version: { type: Number, default: null },
    requested_by: { type: String, default: null },
    runs: { type: Number, required: true },
    runs_begun: { type: Number, default: 0 },
    runs_ended: { type: Number, default: 0 },
    tokens: { type: Number, default: 0 },
    cost_nano_usd: { type: Number, default: 0 },
    ended_at: { type: Date, default: null },
    verdict: { type: String, default: null },
    result_json: { type: String, default: null },
    compared_json: { type: String, default: null },
  },
  aiEvalStates,
  'ai_evals',
  { within: 'workflow_id' },
)
schema.index({ tenant_id: 1, workflow_id: 1, _id: -1 })
export const AiEval = mongoose.model<AiEvalDocument>('AiEval', schema)
export const aiEvalResource = defineResource('ai_eval', AiEval, aiEvalStates, { title: 'run of eval cases' })

/** The cases of a run of eval cases, until it ends: they may have 4 MiB, and its counters change often. */
interface AiEvalCasesDocument {
  /** The eval's. */
  _id: string
  tenant_id: string
  /** As JSON: their names may hold what MongoDB reads as operators. */
  cases_json: string
}

const casesSchema = new Schema<AiEvalCasesDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    cases_json: { type: String, required: true },
  },
  { ...schemaOptions, collection: 'ai_eval_frozen_cases' },
)
tenantScoped(casesSchema)
export const AiEvalCases = mongoose.model<AiEvalCasesDocument>('AiEvalCases', casesSchema)

/** One attempt at a case, until the eval ends. */
export interface AiEvalAttemptDocument {
  /** `<eval>:<case>:<repeat>`: each attempt is begun once. */
  _id: string
  tenant_id: string
  eval_id: string
  case_id: string
  /** From 1 on. */
  repeat: number
  /** Null: the version refused the input. */
  run_id: string | null
  /** Null: it goes on. */
  end: AttemptEnd | null
}

const attemptSchema = new Schema<AiEvalAttemptDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    eval_id: { type: String, required: true },
    case_id: { type: String, required: true },
    repeat: { type: Number, required: true },
    run_id: { type: String, default: null },
    end: { type: Schema.Types.Mixed, default: null },
  },
  { ...schemaOptions, collection: 'ai_eval_attempts' },
)
tenantScoped(attemptSchema)
attemptSchema.index({ tenant_id: 1, eval_id: 1 })
export const AiEvalAttempt = mongoose.model<AiEvalAttemptDocument>('AiEvalAttempt', attemptSchema)

/** Of any tenant, without its result. Null: it is gone. */
export const evalOf = (_id: string): Promise<AiEvalDocument | null> =>
  AiEval.findById(_id, { result_json: 0 }).setOptions(everyTenant).lean()

/** Throws NotFound. */
export async function frozenCasesOf({
  _id,
  tenant_id,
}: Pick<AiEvalDocument, '_id' | 'tenant_id'>): Promise<FrozenCase[]> {
  const found = await AiEvalCases.findOne({ _id, tenant_id }).lean()
  if (!found) throw new NotFound(aiEvalResource.title)
  return JSON.parse(found.cases_json) as FrozenCase[]
}

/** In a workflow's evals, those with a result. */
const withResult = { verdict: { $ne: null } }

/** The results of a workflow before this one, the newest first. */
export const resultsBefore = (
  { tenant_id, _id: workflow_id }: { tenant_id: string; _id: string },
  before: string | null,
  limit: number,
): Promise<AiEvalDocument[]> =>
  AiEval.find({ tenant_id, workflow_id, ...withResult, ...(before === null ? {} : { _id: { $lt: before } }) })
    .sort({ _id: -1 })
    .limit(limit)
    .lean()

/** The newest result among those of a workflow that match; null: there is none. */
export const newestResult = (
  { tenant_id, workflow_id }: Pick<AiEvalDocument, 'tenant_id' | 'workflow_id'>,
  filter: object,
): Promise<AiEvalDocument | null> =>
  AiEval.findOne({ tenant_id, workflow_id, ...withResult, ...filter })
    .sort({ _id: -1 })
    .lean()

export const resultOf = ({ result_json }: AiEvalDocument): EvalResult =>
  JSON.parse(result_json ?? 'null') as EvalResult
export const comparedOf = ({ compared_json }: AiEvalDocument): Compared | null =>
  JSON.parse(compared_json ?? 'null') as Compared | null

/** Throws OperationInProgress while eval cases of the workflow run. Call after a write to the workflow. */
export async function needNoEval(tenant_id: string, workflow_id: string): Promise<void> {
  const open = await AiEval.findOne(
    { tenant_id, workflow_id, operation_id: { $ne: null } },
    { operation_id: 1 },
  ).lean()
  if (open?.operation_id) throw new OperationInProgress(open.operation_id)
}

/** Removes what is left of attempts and cases. */
export async function dropAttempts({
  _id,
  tenant_id,
}: Pick<AiEvalDocument, '_id' | 'tenant_id'>): Promise<void> {
  await AiEvalCases.deleteOne({ _id, tenant_id })
  await AiEvalAttempt.deleteMany({ tenant_id, eval_id: _id })
}

/** Removes a workflow's evals that have ended, but for the newest. Call in a transaction. */
export async function removeEvals(
  { tenant_id, workflow_id }: Pick<AiEvalDocument, 'tenant_id' | 'workflow_id'>,
  kept: number,
): Promise<void> {
  const old = await AiEval.find({ tenant_id, workflow_id, operation_id: null }, { tenant_id: 1 })
    .sort({ _id: -1 })
    .skip(kept)
    .lean()
  for (const one of old) {
    await AiEval.deleteOne({ _id: one._id, tenant_id }) // one by one, since they are counted
    await dropAttempts(one)
    await forgetActivity(tenant_id, one._id)
  }
}
