import { z } from 'zod'
import { changeVpc, createVpc, type VpcDocument, vpcResource, vpcStates } from '../../models/network/vpcs.ts'
import { byId, Name, commonView, resourceView, Tags } from '../fields.ts'
import { operation } from '../operation.ts'
import { resourceOperations } from '../resources.ts'
import { PrivateCidr } from './fields.ts'

const VpcView = z
  .strictObject({ ...resourceView, status: z.enum(vpcStates.all), cidr: z.string() })
  .meta({ id: 'Vpc' })

const toView = (vpc: VpcDocument): z.output<typeof VpcView> => ({ ...commonView(vpc), cidr: vpc.cidr })

const common = resourceOperations({
  resource: vpcResource,
  plural: 'vpcs',
  deletion: 'Delete a VPC that has no subnets',
  view: VpcView,
  toView,
})

export const vpcs = [
  common.list,

  operation({
    method: 'POST',
    path: '/api/v1/vpcs',
    permission: 'vpcs:create',
    summary: 'Create a VPC: a private network, isolated even from VPCs with the same addresses',
    body: z.strictObject({ name: Name, cidr: PrivateCidr(8, 28), tags: Tags.default({}) }),
    responses: { 201: VpcView },
    handle: async ({ caller, body }) => {
      const vpc = await createVpc(caller.tenant_id, body)
      return { location: `/api/v1/vpcs/${vpc._id}`, body: toView(vpc) }
    },
  }),

  common.get,

  operation({
    method: 'PUT',
    path: '/api/v1/vpcs/{id}',
    permission: 'vpcs:update',
    summary: 'Update a VPC’s name or tags',
    params: byId,
    body: z.strictObject({ name: Name, tags: Tags }).partial(),
    responses: { 200: VpcView },
    handle: async ({ caller, params, body }) => toView(await changeVpc(caller.tenant_id, params.id, body)),
  }),

  common.delete,
]
