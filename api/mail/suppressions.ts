import { z } from 'zod'
import {
  liftSuppression,
  MailSuppression,
  type MailSuppressionDocument,
  suppressionReasons,
} from '../../models/mail/suppressions.ts'
import { byId, Id, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'

const SuppressionView = z
  .strictObject({
    id: Id,
    address: z.string(),
    reason: z.enum(suppressionReasons),
    detail: z.string().nullable().describe('Kind of bounce or complaint, as the mail service names it'),
    created_at: Timestamp,
    updated_at: Timestamp.describe('When it was last reported'),
  })
  .meta({ id: 'MailSuppression' })

const toView = (suppression: MailSuppressionDocument): z.output<typeof SuppressionView> => ({
  id: suppression._id,
  address: suppression.address,
  reason: suppression.reason,
  detail: suppression.detail,
  created_at: time(suppression.created_at),
  updated_at: time(suppression.updated_at),
})

export const mailSuppressions = [
  list({
    path: '/api/v1/platform/mail-suppressions',
    permission: 'platform:operations',
    summary: 'List the addresses to which no mail is sent',
    model: MailSuppression,
    view: SuppressionView,
    toView,
    scope: () => ({}), // of no tenant: an address is suppressed for all tenants
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/platform/mail-suppressions/{id}',
    permission: 'platform:operations',
    summary: 'Allow mail to an address again',
    params: byId,
    responses: { 204: null },
    handle: async ({ params }) => liftSuppression(params.id),
  }),
]
