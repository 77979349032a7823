import { z } from 'zod'
import { PermissionDenied } from '../../lib/problem.ts'
import { rotateWebhook } from '../../models/ai/webhooks.ts'
import { byId, Id } from '../fields.ts'
import { operation } from '../operation.ts'
import { path, shownOfWebhook, toWebhook } from './views.ts'

const SecretView = z
  .strictObject({
    workflow_id: Id,
    ...shownOfWebhook,
    secret: z.string().describe('Signs the webhooks; shown only here'),
  })
  .meta({ id: 'WorkflowWebhookSecret' })

/** The HTTP operations on the secrets that sign the webhooks to AI workflows. */
export const aiWebhooks = [
  operation({
    method: 'POST',
    path: `${path}/{id}/webhook/rotate`,
    permission: 'workflows:update',
    summary: 'Make a new secret for the webhooks to an AI workflow; shown only once',
    params: byId,
    body: z
      .strictObject({
        overlap_sec: z
          .int()
          .min(0)
          .max(7 * 86_400)
          .default(0)
          .describe('How long the former secret signs as well'),
      })
      .prefault({}),
    responses: { 200: SecretView },
    handle: async ({ caller, params, body }) => {
      // Who has the secret starts runs.
      if (!caller.permissions.has('workflows:run')) throw new PermissionDenied('workflows:run')
      const { webhook, secret } = await rotateWebhook(caller, params.id, body.overlap_sec)
      return { workflow_id: params.id, ...toWebhook(webhook), secret }
    },
  }),
]
