import { z } from 'zod'
import {
  changeVpc,
  createVpc,
  Vpc,
  type VpcDocument,
  vpcOf,
  vpcResource,
  vpcStates,
} from '../../models/network/vpcs.ts'
import { begin } from '../accept.ts'
import { byId, Name, resourceView, Tags, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { PrivateCidr } from './fields.ts'

const VpcView = z
  .strictObject({ ...resourceView, status: z.enum(vpcStates.all), cidr: z.string() })
  .meta({ id: 'Vpc' })

const toView = (vpc: VpcDocument): z.output<typeof VpcView> => ({
  id: vpc._id,
  tenant_id: vpc.tenant_id,
  name: vpc.name,
  tags: vpc.tags,
  status: vpc.status,
  status_reason: vpc.status_reason,
  operation_id: vpc.operation_id,
  cidr: vpc.cidr,
  created_at: time(vpc.created_at),
  updated_at: time(vpc.updated_at),
})

export const vpcs = [
  list({
    path: '/api/v1/vpcs',
    permission: 'vpcs:read',
    summary: 'List VPCs',
    model: Vpc,
    view: VpcView,
    toView,
    scope: ({ tenant_id }) => ({ tenant_id }),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/vpcs',
    permission: 'vpcs:create',
    summary: 'Create a VPC: private addresses, apart from all other VPCs, which may have the same',
    body: z.strictObject({ name: Name, cidr: PrivateCidr(8, 28), tags: Tags.default({}) }),
    responses: { 201: VpcView },
    handle: async ({ caller, body }) => {
      const vpc = await createVpc(caller.tenant_id, body)
      return { location: `/api/v1/vpcs/${vpc._id}`, body: toView(vpc) }
    },
  }),

  operation({
    method: 'GET',
    path: '/api/v1/vpcs/{id}',
    permission: 'vpcs:read',
    summary: 'Get a VPC',
    params: byId,
    responses: { 200: VpcView },
    handle: async ({ caller, params }) => toView(await vpcOf(caller.tenant_id, params.id)),
  }),

  operation({
    method: 'PUT',
    path: '/api/v1/vpcs/{id}',
    permission: 'vpcs:update',
    summary: 'Change a VPC’s name or tags',
    params: byId,
    body: z.strictObject({ name: Name, tags: Tags }).partial(),
    responses: { 200: VpcView },
    handle: async ({ caller, params, body }) => toView(await changeVpc(caller.tenant_id, params.id, body)),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/vpcs/{id}',
    permission: 'vpcs:delete',
    summary: 'Delete a VPC without subnets',
    params: byId,
    responses: { 202: VpcView },
    handle: ({ caller, params }) =>
      begin(caller, { resource: vpcResource, view: VpcView, toView }, params.id, 'delete'),
  }),
]
