import mongoose from 'mongoose'
import { NotFound, OperationInProgress } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { needUnmanaged } from '../managed.ts'
import { lockParent, type ParentDocument, parentFields } from '../parents.ts'
import { defineResource, mine, named, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'

export const vpcStates = states({ available: { delete: 'deleting' } }, { final: ['delete'] })

/** A tenant's private network. Hosts get its configuration through its subnets. */
export interface VpcDocument extends ResourceDocument<StateOf<typeof vpcStates>>, ParentDocument {
  cidr: string
  /**
   * Unreachable hosts that lost a member, which may still run there. The other hosts do not peer with them
   * (host-networks.ts).
   */
  cut_off_hosts: string[]
}

const schema = resourceSchema<VpcDocument>(
  {
    cidr: { type: String, required: true },
    cut_off_hosts: { type: [String], default: [] },
    ...parentFields,
  },
  vpcStates,
  'vpcs',
)
schema.index({ cut_off_hosts: 1 })
export const Vpc = mongoose.model<VpcDocument>('Vpc', schema)

export const vpcResource = defineResource('vpc', Vpc, vpcStates, { title: 'VPC' })

/** Throws QuotaExceeded, NameTaken. */
export const createVpc = (
  tenant_id: string,
  fields: Pick<VpcDocument, 'name' | 'cidr' | 'tags'> & Partial<Pick<VpcDocument, 'managed_by'>>,
): Promise<VpcDocument> =>
  named('VPC', fields.name, () =>
    transaction(async () => {
      await lockParent(tenantResource, tenant_id, tenant_id)
      await needQuota(tenant_id, 'max_vpcs', await Vpc.countDocuments({ tenant_id }))
      const vpc = await new Vpc({ ...fields, tenant_id, status: 'available' }).save()
      return vpc.toObject()
    }, tenant_id),
  )

/** Throws NotFound, OperationInProgress, NameTaken, ManagedResource. */
export async function changeVpc(
  tenant_id: string,
  _id: string,
  changes: { name?: string | undefined; tags?: Record<string, string> | undefined },
): Promise<VpcDocument> {
  const changed = await named('VPC', changes.name ?? '', () =>
    Vpc.findOneAndUpdate(
      { _id, tenant_id, operation_id: null, managed_by: null },
      { $set: changes },
      { returnDocument: 'after' },
    ).lean(),
  )
  if (changed) return changed
  const vpc = await mine(vpcResource, { tenant_id }, _id)
  needUnmanaged('VPC', vpc)
  const { operation_id } = vpc
  throw operation_id ? new OperationInProgress(operation_id) : new NotFound('VPC')
}
