import type { ModelAlias, Spec } from '../../lib/ai/spec.ts'
import { Problem } from '../../lib/problem.ts'
import { type ProviderName, providerNames } from '../connectors/catalogue.ts'
import { Connector } from '../connectors/connectors.ts'
import { issueToken } from '../llm/tokens.ts'
import { purposeOf } from './eval-ends.ts'
import type { AiEvalDocument } from './evals.ts'
import { specOf, versionNumbered } from './versions.ts'

// The models that judge outputs. What they take is paid by the tenant, for the run of the eval cases.

export interface Judge {
  model: ModelAlias
  provider: string
  token: string
}

const isProvider = (reference: string): reference is ProviderName =>
  (providerNames as string[]).includes(reference)

/** `asked`: a name in the version's `models`, or a model. Throws `model_unknown`, `connector_missing`, and as `issueToken`. */
export async function judgeOf(its: AiEvalDocument, asked: string | ModelAlias): Promise<Judge> {
  const { tenant_id } = its
  const model = typeof asked === 'string' ? await modelNamed(its, asked) : asked
  const { connector: reference } = model
  const which = isProvider(reference) ? { provider: reference, is_default: true } : { _id: reference }
  const connector = await Connector.findOne({ tenant_id, ...which }, { provider: 1 }).lean()
  if (!connector)
    throw new Problem(
      409,
      'connector_missing',
      'The judge’s connector is missing',
      `There is no connector ${reference}`,
    )
  // Without a budget of its own: the cases and their repeats bound it, and the tenant's month.
  const { token } = await issueToken(
    { tenant_id, purpose: purposeOf(its), connector_id: connector._id, fallbacks: [] },
    null,
  )
  return { model, provider: connector.provider, token }
}

async function modelNamed(its: AiEvalDocument, alias: string): Promise<ModelAlias> {
  const version = await versionNumbered({ _id: its.workflow_id, tenant_id: its.tenant_id }, its.version)
  const { models = {} } = specOf(version) as unknown as Spec
  const model = Object.hasOwn(models, alias) ? models[alias] : undefined
  if (!model)
    throw new Problem(409, 'model_unknown', 'The judge is unknown', `The version has no model ${alias}`)
  return model
}
