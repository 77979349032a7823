import mongoose from 'mongoose'
import { NotFound, OperationInProgress, QuotaExceeded, StateConflict } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { Tenant } from '../identity/tenants.ts'
import { defineResource, named, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'

export const vpcStates = states({ available: { delete: 'deleting' } }, { final: ['delete'] })

/** A tenant's private network. What it is on hosts, its subnets say. */
export interface VpcDocument extends ResourceDocument<StateOf<typeof vpcStates>> {
  cidr: string
  /**
   * Hosts that do not answer, from which a member was taken away all the same: what still runs there must not be heard
   * (host-networks.ts).
   */
  cut_off_hosts: string[]
  /** Counts what must not happen at once: writing it has transactions meet. */
  turns: number
}

const schema = resourceSchema<VpcDocument>(
  {
    cidr: { type: String, required: true },
    cut_off_hosts: { type: [String], default: [] },
    turns: { type: Number, default: 0 },
  },
  vpcStates,
  'vpcs',
)
schema.index({ cut_off_hosts: 1 })
export const Vpc = mongoose.model<VpcDocument>('Vpc', schema)

export const vpcResource = defineResource('vpc', Vpc, vpcStates)

/** The tenant's own. Throws NotFound. */
export async function vpcOf(tenant_id: string, _id: string): Promise<VpcDocument> {
  const vpc = await Vpc.findOne({ _id, tenant_id }).lean()
  if (!vpc) throw new NotFound('VPC')
  return vpc
}

/** Throws QuotaExceeded, NameTaken. */
export const createVpc = (
  tenant_id: string,
  fields: Pick<VpcDocument, 'name' | 'cidr' | 'tags'>,
): Promise<VpcDocument> =>
  named('VPC', fields.name, () =>
    transaction(async () => {
      await takeVpc(tenant_id)
      const vpc = await new Vpc({ ...fields, tenant_id, status: 'available' }).save()
      return vpc.toObject()
    }, tenant_id),
  )

/** One more. They are counted where they are, so that nothing has to be given back. */
async function takeVpc(tenant_id: string): Promise<void> {
  // Two at once meet here, and the second counts the first.
  const tenant = await Tenant.findByIdAndUpdate(tenant_id, { $inc: { vpc_turns: 1 } }, { timestamps: false })
  if (!tenant) throw new NotFound('tenant')
  if (tenant.status !== 'active') throw new StateConflict('create a VPC', tenant.status)
  const used = await Vpc.countDocuments({ tenant_id })
  const allowed = tenant.limits.max_vpcs
  if (used >= allowed) throw new QuotaExceeded('max_vpcs', allowed, used, 1)
}

/** Throws NotFound, OperationInProgress, NameTaken. */
export async function changeVpc(
  tenant_id: string,
  _id: string,
  changes: { name?: string | undefined; tags?: Record<string, string> | undefined },
): Promise<VpcDocument> {
  const changed = await named('VPC', changes.name ?? '', () =>
    Vpc.findOneAndUpdate(
      { _id, tenant_id, operation_id: null },
      { $set: changes },
      { returnDocument: 'after' },
    ).lean(),
  )
  if (changed) return changed
  const { operation_id } = await vpcOf(tenant_id, _id)
  throw operation_id ? new OperationInProgress(operation_id) : new NotFound('VPC')
}

/**
 * The VPC, for something new in it: until the transaction's end nobody else puts something there, or deletes it. Throws
 * NotFound, StateConflict.
 */
export async function enterVpc(tenant_id: string, _id: string): Promise<VpcDocument> {
  const vpc = await Vpc.findOneAndUpdate(
    { _id, tenant_id, status: 'available' },
    { $inc: { turns: 1 } },
    { timestamps: false },
  ).lean()
  if (vpc) return vpc
  throw new StateConflict('use the VPC', (await vpcOf(tenant_id, _id)).status)
}
