import { randomInt } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { holds, overlap, parseCidr, toAddress } from '../../lib/ipv4.ts'
import { InvalidInput, Problem } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { needSameManager } from '../managed.ts'
import { lockParent, type ParentDocument, parentFields } from '../parents.ts'
import { defineResource, keptBy, named, type ResourceDocument, resourceSchema } from '../resources.ts'
import { schemaOptions } from '../schemas.ts'
import { type StateOf, states } from '../states.ts'
import type { DhcpConfig } from './dhcp.ts'
import { vpcResource } from './vpcs.ts'

// Changes cannot be cancelled; the opposite change undoes them.
export const subnetStates = states(
  {
    available: {
      update: 'updating',
      attach_dhcp: 'updating',
      detach_dhcp: 'updating',
      delete: 'deleting',
    },
  },
  { final: ['update', 'attach_dhcp', 'detach_dhcp', 'delete'] },
)

/** A part of its VPC's address range. NICs of instances are in subnets. */
export interface SubnetDocument extends ResourceDocument<StateOf<typeof subnetStates>>, ParentDocument {
  vpc_id: string
  cidr: string
  gateway_ip: string
  /** Whether members reach networks outside the VPC. */
  nat: boolean
  dhcp_config: DhcpConfig | null
  /** The VXLAN network identifier between hosts, unique over all tenants. */
  vni: number
}

const schema = resourceSchema<SubnetDocument>(
  {
    vpc_id: { type: String, required: true },
    cidr: { type: String, required: true },
    gateway_ip: { type: String, required: true },
    nat: { type: Boolean, required: true },
    dhcp_config: { type: Schema.Types.Mixed, default: null },
    vni: { type: Number, required: true },
    ...parentFields,
  },
  subnetStates,
  'subnets',
)
schema.index({ vpc_id: 1 })
schema.index({ vni: 1 }, { unique: true })
export const Subnet = mongoose.model<SubnetDocument>('Subnet', schema)

export const subnetResource = defineResource('subnet', Subnet, subnetStates)

keptBy(vpcResource, async ({ _id, tenant_id }) => {
  const subnets = await Subnet.countDocuments({ tenant_id, vpc_id: _id })
  if (subnets) throw new Problem(409, 'vpc_in_use', 'The VPC is in use', `The VPC has ${subnets} subnets`)
})

type NewSubnet = Pick<SubnetDocument, 'name' | 'tags' | 'vpc_id' | 'cidr' | 'nat'> & {
  /** Null: the first usable address. */
  gateway_ip: string | null
  managed_by?: string | null
}

/**
 * Throws InvalidInput, NotFound (the VPC), NameTaken, ManagedResource, QuotaExceeded, and a 409 if the range overlaps another
 * subnet.
 */
export async function createSubnet(tenant_id: string, fields: NewSubnet): Promise<SubnetDocument> {
  for (;;) {
    const vni = await nextVni()
    try {
      return await named('subnet', fields.name, () =>
        transaction(() => insertSubnet(tenant_id, { ...fields, vni }), tenant_id),
      )
    } catch (error) {
      // The VNIs have wrapped around, and this one is still in use: try the next.
      if (!isDuplicateKey(error) || !('vni' in error.keyPattern)) throw error
    }
  }
}

async function insertSubnet(tenant_id: string, fields: NewSubnet & { vni: number }): Promise<SubnetDocument> {
  await lockParent(tenantResource, tenant_id, tenant_id)
  await needQuota(tenant_id, 'max_subnets', await Subnet.countDocuments({ tenant_id }))
  const vpc = await lockParent(vpcResource, tenant_id, fields.vpc_id)
  needSameManager('VPC', vpc, { managed_by: fields.managed_by ?? null })
  const [whole, own] = [parseCidr(vpc.cidr), parseCidr(fields.cidr)]
  if (!whole || !own || !holds(whole, own)) throw mistake('/cidr', `must lie in the VPC’s ${vpc.cidr}`)
  const gateway_ip = fields.gateway_ip ?? toAddress(own.first + 1)
  const gateway = parseCidr(gateway_ip)
  if (!gateway || gateway.first <= own.first || gateway.first >= own.last)
    throw mistake('/gateway_ip', 'must be an address of the subnet, neither its first nor its last')
  for (const other of await Subnet.find({ tenant_id, vpc_id: vpc._id }).lean()) {
    const theirs = parseCidr(other.cidr)
    if (theirs && overlap(own, theirs)) {
      const detail = `The subnet ${other.name} already uses ${other.cidr}`
      throw new Problem(409, 'cidr_overlaps', 'The addresses are taken', detail)
    }
  }
  const subnet = await new Subnet({ ...fields, gateway_ip, tenant_id, status: 'available' }).save()
  return subnet.toObject()
}

const mistake = (pointer: string, message: string) => new InvalidInput(422, [{ pointer, message }])

interface CounterDocument {
  _id: string
  last: number
}
const Counter = mongoose.model<CounterDocument>(
  'NetworkCounter',
  new Schema<CounterDocument>(
    { _id: { type: String, required: true }, last: { type: Number, required: true } },
    { ...schemaOptions, collection: 'network_counters' },
  ),
)

const vnis = 2 ** 24 - 1

/**
 * Takes VNIs in rotation: an unreachable host may still use the VNI of a subnet that was deleted recently. The first one
 * is random: other platforms on the same machines or network, also former ones, use other VNIs.
 */
async function nextVni(): Promise<number> {
  const before = { $ifNull: ['$last', randomInt(vnis)] }
  const { last } = await Counter.findOneAndUpdate(
    { _id: 'vni' },
    [{ $set: { last: { $add: [before, 1] } } }],
    { upsert: true, returnDocument: 'after', updatePipeline: true },
  ).lean()
  return ((last - 1) % vnis) + 1
}
