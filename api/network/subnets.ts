import { z } from 'zod'
import { defaultDomain } from '../../models/network/dhcp.ts'
import {
  acceptDhcpConfig,
  acceptDhcpRemoval,
  acceptSubnetUpdate,
} from '../../models/network/subnet-acceptance.ts'
import {
  createSubnet,
  type SubnetDocument,
  subnetResource,
  subnetStates,
} from '../../models/network/subnets.ts'
import { accepting } from '../accept.ts'
import { byId, Id, Name, commonView, resourceView, Tags } from '../fields.ts'
import { operation } from '../operation.ts'
import { resourceOperations } from '../resources.ts'
import { IpAddress, MacAddress, PrivateCidr } from './fields.ts'

const Nat = z.boolean().describe('Whether members reach the internet through their host’s address')

const Domain = z
  .string()
  .max(200)
  .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/)

const DhcpConfig = z
  .strictObject({
    range_start: IpAddress.nullable()
      .default(null)
      .describe(
        'The first address to lease to interfaces that are not NICs of instances; null: none are leased',
      ),
    range_end: IpAddress.nullable().default(null),
    lease_time_sec: z.int().min(120).max(31_536_000).default(3600),
    dns_servers: z.array(IpAddress).max(8).default([]).describe('Resolvers for names outside the VPC'),
    domain_name: Domain.default(defaultDomain),
    static_leases: z
      .array(z.strictObject({ mac_address: MacAddress, ip_address: IpAddress }))
      .max(256)
      .default([]),
  })
  .meta({ id: 'DhcpConfig' })

const SubnetView = z
  .strictObject({
    ...resourceView,
    status: z.enum(subnetStates.all),
    vpc_id: Id,
    cidr: z.string(),
    gateway_ip: z.string(),
    nat: Nat,
    dhcp_config: DhcpConfig.nullable(),
  })
  .meta({ id: 'Subnet' })

const toView = (subnet: SubnetDocument): z.output<typeof SubnetView> => ({
  ...commonView(subnet),
  vpc_id: subnet.vpc_id,
  cidr: subnet.cidr,
  gateway_ip: subnet.gateway_ip,
  nat: subnet.nat,
  dhcp_config: subnet.dhcp_config,
})

const common = resourceOperations({
  resource: subnetResource,
  plural: 'subnets',
  deletion: 'Delete a subnet that has no NICs',
  view: SubnetView,
  toView,
})

export const subnets = [
  common.list,

  operation({
    method: 'POST',
    path: '/api/v1/subnets',
    permission: 'subnets:create',
    summary: 'Create a subnet in a VPC',
    body: z.strictObject({
      name: Name,
      vpc_id: Id,
      cidr: PrivateCidr(8, 29),
      gateway_ip: IpAddress.nullable().default(null).describe('Default: the first address'),
      nat: Nat.default(true),
      tags: Tags.default({}),
    }),
    responses: { 201: SubnetView },
    refuses: [404],
    handle: async ({ caller, body }) => {
      const subnet = await createSubnet(caller.tenant_id, body)
      return { location: `/api/v1/subnets/${subnet._id}`, body: toView(subnet) }
    },
  }),

  common.get,

  operation({
    method: 'PUT',
    path: '/api/v1/subnets/{id}',
    permission: 'subnets:update',
    summary: 'Update a subnet’s name, tags or NAT on all its hosts',
    params: byId,
    body: z.strictObject({ name: Name, tags: Tags, nat: Nat }).partial(),
    responses: { 202: SubnetView },
    handle: ({ caller, params, body }) =>
      accepting(caller, toView, (by) => acceptSubnetUpdate(by, params.id, body)),
  }),

  common.delete,

  operation({
    method: 'POST',
    path: '/api/v1/subnets/{id}/dhcp-config',
    permission: 'subnets:update',
    summary: 'Attach a DHCP config, replacing any existing one',
    params: byId,
    body: DhcpConfig,
    responses: { 202: SubnetView },
    handle: ({ caller, params, body }) =>
      accepting(caller, toView, (by) => acceptDhcpConfig(by, params.id, body)),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/subnets/{id}/dhcp-config',
    permission: 'subnets:update',
    summary: 'Detach the DHCP config; the defaults apply',
    params: byId,
    responses: { 202: SubnetView },
    handle: ({ caller, params }) => accepting(caller, toView, (by) => acceptDhcpRemoval(by, params.id)),
  }),
]
