import mongoose, { Schema } from 'mongoose'
import { Problem } from '../../lib/problem.ts'
import { newWebhookSecret, verifyWebhook } from '../../lib/standard-webhooks.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { acceptAiRun } from './run-acceptance.ts'
import { openWebhook } from './webhooks.ts'

/** The run of a webhook, remembered for as long as the sender may repeat it. */
interface AiWebhookRunDocument {
  /** `<workflow>:<the sender's id>` */
  _id: string
  tenant_id: string
  workflow_id: string
  run_id: string
  expires_at: Date
}

const schema = new Schema<AiWebhookRunDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    workflow_id: { type: String, required: true },
    run_id: { type: String, required: true },
    expires_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'ai_webhook_runs' },
)
tenantScoped(schema)
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
schema.index({ tenant_id: 1 })
export const AiWebhookRun = mongoose.model<AiWebhookRunDocument>('AiWebhookRun', schema)

const rememberedMs = 24 * 3_600_000

/** The same for an unknown workflow and for a wrong signature: the answer does not tell which workflows there are. */
export class SignatureInvalid extends Problem {
  constructor() {
    super(
      401,
      'signature_invalid',
      'The webhook is not signed',
      'There is no such workflow, the signature is not from one of its secrets, or its time is more than 5 minutes off',
    )
  }
}

/** Nobody has it. The signature of a webhook to an unknown workflow is checked, too. */
const nobodys = [newWebhookSecret()]

/**
 * Accepts the run that a webhook asks for, with its body as the input, or finds the one that the same id has started within 24
 * hours. Returns the run's id. Throws SignatureInvalid, `invalid_json`, and as acceptAiRun.
 */
export async function acceptWebhook(
  workflow_id: string,
  headers: Record<string, string | string[] | undefined>,
  rawBody: Uint8Array,
): Promise<string> {
  const opened = await openWebhook(workflow_id)
  const webhook = verifyWebhook(opened?.secrets ?? nobodys, headers, rawBody, new Date())
  if (!opened || !webhook) throw new SignatureInvalid()
  const its = { _id: `${workflow_id}:${webhook.id}`, tenant_id: opened.tenant_id }
  const known = await runIdOf(its)
  if (known !== null) return known
  try {
    return await accept(its, workflow_id, parsed(rawBody))
  } catch (error) {
    // Of webhooks with the same id at once, one starts a run.
    const other = isDuplicateKey(error) && '_id' in error.keyPattern ? await runIdOf(its) : null
    if (other === null) throw error
    return other
  }
}

type Its = Pick<AiWebhookRunDocument, '_id' | 'tenant_id'>

const runIdOf = async (its: Its): Promise<string | null> =>
  (await AiWebhookRun.findOne({ ...its, expires_at: { $gt: new Date() } }).lean())?.run_id ?? null

const accept = (its: Its, workflow_id: string, input: unknown): Promise<string> =>
  transaction(async () => {
    const { tenant_id } = its
    const asked = { input, canary_key: null, trigger: 'webhook' as const }
    const { _id: run_id } = await acceptAiRun({ tenant_id, id: null }, workflow_id, asked)
    // MongoDB removes expired documents once a minute.
    await AiWebhookRun.deleteOne({ ...its, expires_at: { $lte: new Date() } })
    const expires_at = new Date(Date.now() + rememberedMs)
    await new AiWebhookRun({ ...its, workflow_id, run_id, expires_at }).save()
    return run_id
  }, workflow_id)

function parsed(rawBody: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(rawBody))
  } catch (cause) {
    throw new Problem(400, 'invalid_json', 'The body is not JSON', undefined, { cause })
  }
}
