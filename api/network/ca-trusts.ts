import { z } from 'zod'
import {
  type CaTrustDocument,
  caTrustResource,
  caTrustStates,
  changeCaTrust,
  createCaTrust,
} from '../../models/network/ca-trusts.ts'
import { longestPem } from '../../models/network/chains.ts'
import { byId, commonView, Name, resourceView, Tags, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'
import { resourceOperations } from '../resources.ts'

const Authorities = z.string().min(1).max(longestPem).describe('PEM: one or more certificates of authorities')

const CaTrustView = z
  .strictObject({
    ...resourceView,
    status: z.enum(caTrustStates.all),
    certificates_pem: z.string(),
    subjects: z.array(z.string()),
    not_after: Timestamp.describe('When the first of the certificates expires'),
  })
  .meta({ id: 'CaTrust' })

const toView = (trust: CaTrustDocument): z.output<typeof CaTrustView> => ({
  ...commonView(trust),
  certificates_pem: trust.certificates_pem,
  subjects: trust.subjects,
  not_after: time(trust.not_after),
})

const common = resourceOperations({
  resource: caTrustResource,
  plural: 'certificates',
  path: 'ca-trusts',
  deletion: 'Delete a CA trust that no route uses',
  view: CaTrustView,
  toView,
})

export const caTrusts = [
  common.list,

  operation({
    method: 'POST',
    path: '/api/v1/ca-trusts',
    permission: 'certificates:create',
    summary: 'Upload the certificate authorities with which routes verify their targets',
    body: z.strictObject({ name: Name, tags: Tags.default({}), certificates_pem: Authorities }),
    responses: { 201: CaTrustView },
    handle: async ({ caller, body }) => {
      const trust = await createCaTrust(caller.tenant_id, body)
      return { location: `/api/v1/ca-trusts/${trust._id}`, body: toView(trust) }
    },
  }),

  common.get,

  operation({
    method: 'PUT',
    path: '/api/v1/ca-trusts/{id}',
    permission: 'certificates:update',
    summary: 'Update a CA trust’s name, tags or authorities',
    params: byId,
    body: z.strictObject({ name: Name, tags: Tags, certificates_pem: Authorities }).partial(),
    responses: { 200: CaTrustView },
    handle: async ({ caller, params, body: { name, tags, certificates_pem } }) =>
      toView(
        await changeCaTrust(caller.tenant_id, params.id, {
          ...(name === undefined ? {} : { name }),
          ...(tags === undefined ? {} : { tags }),
          ...(certificates_pem === undefined ? {} : { certificates_pem }),
        }),
      ),
  }),

  common.delete,
]
