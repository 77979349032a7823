import { z } from 'zod'
import { runBounds } from '../../lib/ai/bounds.ts'
import { PermissionDenied } from '../../lib/problem.ts'
import { acceptWebhook } from '../../models/ai/webhook-runs.ts'
import { rotateWebhook } from '../../models/ai/webhooks.ts'
import { byId, Id } from '../fields.ts'
import { anybody, operation } from '../operation.ts'
import { path, shownOfWebhook, toWebhook } from './views.ts'

const SecretView = z
  .strictObject({
    workflow_id: Id,
    ...shownOfWebhook,
    secret: z.string().describe('The secret that signs the webhooks, shown only here'),
  })
  .meta({ id: 'WorkflowWebhookSecret' })

/** The HTTP operations on webhooks to AI workflows: the secrets that sign them, and their receiver. */
export const aiWebhooks = [
  operation({
    method: 'POST',
    path: `${path}/{id}/webhook/rotate`,
    permission: 'workflows:update',
    summary: 'Rotate the secret of the webhooks to an AI workflow; it is shown only once',
    params: byId,
    body: z
      .strictObject({
        overlap_sec: z
          .int()
          .min(0)
          .max(7 * 86_400)
          .default(0)
          .describe('Seconds for which the former secret stays valid'),
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

  operation({
    method: 'POST',
    path: '/hooks/workflows/{id}',
    permission: anybody('each webhook is signed by a secret of the workflow'),
    summary: 'Receive a webhook that runs an AI workflow; the same `webhook-id` within 24 h starts one run',
    params: byId,
    body: z.instanceof(Buffer).meta({ type: 'string', format: 'binary' }),
    bytes: { media_type: 'application/json', at_most_kib: runBounds.inputBytes / 1024 },
    responses: { 200: z.strictObject({ run_id: Id }).meta({ id: 'WorkflowWebhookRun' }) },
    attempts_per_min: 600, // one sender may send for many workflows
    handle: async ({ params, body, http: { request } }) => ({
      run_id: await acceptWebhook(params.id, request.headers, body),
    }),
  }),
]
