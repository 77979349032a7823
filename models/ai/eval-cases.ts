import mongoose, { Schema } from 'mongoose'
import type { Assertion } from '../../lib/ai/assertions.ts'
import { bounds } from '../../lib/ai/bounds.ts'
import { caseBytes, caseSetHash, type EvalCase } from '../../lib/ai/eval-cases.ts'
import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { needQuota } from '../identity/tenants.ts'
import { documentOptions, idField, named } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { AiWorkflow, lockAiWorkflow } from './ai-workflows.ts'

/** An eval case of a workflow: an input, and what its output must be. */
export interface EvalCaseDocument {
  _id: string
  tenant_id: string
  workflow_id: string
  /** Unique in the workflow. */
  name: string
  /** As JSON: their names may hold what MongoDB reads as operators. */
  input_json: string
  assertion_json: string
  repeats: number
  min_pass: number
  /** Of its canonical JSON. */
  bytes: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<EvalCaseDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    workflow_id: { type: String, required: true },
    name: { type: String, required: true },
    input_json: { type: String, required: true },
    assertion_json: { type: String, required: true },
    repeats: { type: Number, required: true },
    min_pass: { type: Number, required: true },
    bytes: { type: Number, required: true },
  },
  { ...documentOptions, collection: 'ai_eval_cases' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, workflow_id: 1, name: 1 }, { unique: true })
export const AiEvalCase = mongoose.model<EvalCaseDocument>('AiEvalCase', schema)

const title = 'eval case'

type Owner = Pick<EvalCaseDocument, 'tenant_id'>

export const inputOf = ({ input_json }: EvalCaseDocument): unknown => JSON.parse(input_json)
export const assertionOf = ({ assertion_json }: EvalCaseDocument): Assertion =>
  JSON.parse(assertion_json) as Assertion

/** `id`: of the case to change, or null. `name`: null leaves the name of that case. */
export interface PutEvalCase extends Omit<EvalCase, 'name'> {
  id: string | null
  name: string | null
}

/**
 * Creates a case, or changes the one with this id, or else this name. Throws NotFound, NameTaken, InvalidInput,
 * QuotaExceeded and `evals_too_large`.
 */
export const putEvalCase = (
  { tenant_id }: Owner,
  workflow_id: string,
  { id, name: asked, ...rest }: PutEvalCase,
): Promise<{ evalCase: EvalCaseDocument; isNew: boolean }> =>
  named(title, asked ?? '', () =>
    transaction(async () => {
      // Cases of a workflow are changed one after another: none is added twice, and the hash is that of them all.
      await lockAiWorkflow({ tenant_id }, workflow_id)
      const its = { tenant_id, workflow_id }
      const there = await AiEvalCase.findOne({
        ...its,
        ...(id === null ? { name: asked } : { _id: id }),
      }).lean()
      if (id !== null && !there) throw new NotFound(title)
      const name = asked ?? there?.name
      if (name === undefined) throw new InvalidInput(422, [{ pointer: '/name', message: 'is required' }])
      const fields = stored({ name, ...rest })
      if (!there) await needQuota(tenant_id, 'max_evals_per_workflow', await AiEvalCase.countDocuments(its))
      const saved = there
        ? await AiEvalCase.findOneAndUpdate(
            { _id: there._id, ...its },
            { $set: fields },
            { returnDocument: 'after' },
          ).lean()
        : (await new AiEvalCase({ ...its, ...fields }).save()).toObject()
      if (!saved) throw new NotFound(title)
      await noteCases(its)
      return { evalCase: saved, isNew: there === null }
    }, workflow_id),
  )

/** Throws NotFound. */
export const deleteEvalCase = ({ tenant_id }: Owner, workflow_id: string, _id: string): Promise<void> =>
  transaction(async () => {
    await lockAiWorkflow({ tenant_id }, workflow_id)
    const { deletedCount } = await AiEvalCase.deleteOne({ _id, tenant_id, workflow_id })
    if (deletedCount === 0) throw new NotFound(title)
    await noteCases({ tenant_id, workflow_id })
  }, workflow_id)

/** Writes to the workflow what its cases are now. Throws `evals_too_large`. */
async function noteCases({ tenant_id, workflow_id }: Owner & { workflow_id: string }): Promise<void> {
  const all = await AiEvalCase.find({ tenant_id, workflow_id }).lean()
  const bytes = all.reduce((sum, one) => sum + one.bytes, 0)
  if (bytes > bounds.caseSetBytes)
    throw new Problem(
      409,
      'evals_too_large',
      'The eval cases are too large',
      `The cases of a workflow may have ${bounds.caseSetBytes} bytes together, and would have ${bytes}`,
    )
  const cases = all.map((one) => ({ ...one, input: inputOf(one), assertion: assertionOf(one) }))
  const set = { $set: { case_set_sha256: caseSetHash(cases) } }
  await AiWorkflow.updateOne({ _id: workflow_id, tenant_id }, set, { timestamps: false })
}

/** Throws InvalidInput if the case is too large. */
function stored(fields: EvalCase) {
  const { input, assertion, ...rest } = fields
  const bytes = caseBytes(fields)
  if (bytes > bounds.caseBytes)
    throw new InvalidInput(422, [
      { pointer: '', message: `the case has ${bytes} bytes, and may have ${bounds.caseBytes}` },
    ])
  return { ...rest, input_json: JSON.stringify(input), assertion_json: JSON.stringify(assertion), bytes }
}
