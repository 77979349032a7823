import mongoose, { Schema } from 'mongoose'
import { endOf } from '../../lib/secret-hints.ts'
import { newWebhookSecret } from '../../lib/standard-webhooks.ts'
import { transaction } from '../database.ts'
import { documentOptions } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { lockAiWorkflow } from './ai-workflows.ts'

/** The secrets that sign the webhooks to a workflow. A workflow has them from their first rotation on. */
export interface AiWebhookDocument {
  /** The workflow's id. */
  _id: string
  tenant_id: string
  secret_sealed: string
  /** The last four characters. */
  secret_hint: string
  /** Signs as well until `former_until`, so that a sender has time to take the new one; `-` for none. */
  former_sealed: string
  former_until: Date | null
  rotated_at: Date
}

const schema = new Schema<AiWebhookDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    secret_sealed: { type: String, required: true },
    secret_hint: { type: String, required: true },
    former_sealed: { type: String, default: '-' },
    former_until: { type: Date, default: null },
    rotated_at: { type: Date, required: true },
  },
  { ...documentOptions, collection: 'ai_webhooks' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1 })
export const AiWebhook = mongoose.model<AiWebhookDocument>('AiWebhook', schema)
// Both are bound to the workflow's id, so that one can take the other's place.
sealedField(AiWebhook, 'secret_sealed')
sealedField(AiWebhook, 'former_sealed')

/** The webhook of a workflow. Null: it has no secret yet. */
export const webhookOf = (tenant_id: string, workflow_id: string): Promise<AiWebhookDocument | null> =>
  AiWebhook.findOne({ _id: workflow_id, tenant_id }).lean()

/** How long its former secret signs as well. Null: it does not. */
export const overlapOf = ({ former_until }: AiWebhookDocument): Date | null =>
  former_until !== null && former_until > new Date() ? former_until : null

/**
 * Makes a new secret, which is shown only once. The one before it signs as well for `overlap_sec`; none before that does. Throws
 * NotFound.
 */
export const rotateWebhook = (
  { tenant_id }: { tenant_id: string },
  workflow_id: string,
  overlap_sec: number,
): Promise<{ webhook: AiWebhookDocument; secret: string }> =>
  transaction(async () => {
    // Rotations are one after another: each keeps the secret of the one before it. None comes after the deletion.
    await lockAiWorkflow({ tenant_id }, workflow_id)
    const there = await webhookOf(tenant_id, workflow_id)
    const secret = newWebhookSecret()
    const keeps = there !== null && overlap_sec > 0
    const rotated_at = new Date()
    const set = {
      secret_sealed: await sealSecret(secret, workflow_id),
      secret_hint: endOf(secret),
      former_sealed: keeps ? there.secret_sealed : '-',
      former_until: keeps ? new Date(rotated_at.getTime() + overlap_sec * 1000) : null,
      rotated_at,
    }
    const webhook = await AiWebhook.findOneAndUpdate(
      { _id: workflow_id, tenant_id },
      { $set: set },
      { upsert: true, returnDocument: 'after' },
    ).lean()
    return { webhook, secret }
  }, workflow_id)

/** The tenant of a workflow, and the secrets that sign webhooks to it now, the newest first. Null: it takes none. */
export async function openWebhook(
  workflow_id: string,
): Promise<{ tenant_id: string; secrets: string[] } | null> {
  const webhook = await AiWebhook.findById(workflow_id).setOptions(everyTenant).lean()
  if (!webhook) return null
  const { tenant_id, secret_sealed, former_sealed } = webhook
  const sealed = overlapOf(webhook) ? [secret_sealed, former_sealed] : [secret_sealed]
  const secrets = await Promise.all(sealed.map((one) => unsealSecret<string>(one, workflow_id)))
  return { tenant_id, secrets }
}
