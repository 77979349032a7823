import { NameTaken } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { createSubnet, Subnet } from '../network/subnets.ts'
import { createVpc, Vpc } from '../network/vpcs.ts'
import type { DeployServerDocument } from './deploy-servers.ts'

/** The addresses of a deploy server's machines. VPCs are isolated, so that all deploy servers have the same. */
export const machinesCidr = '10.77.0.0/24'

type Server = Pick<DeployServerDocument, '_id' | 'tenant_id'>

/** Makes the VPC and the subnet of a deploy server, or finds them. Throws QuotaExceeded. */
export async function makeManagedNetwork({
  _id: managed_by,
  tenant_id,
}: Server): Promise<{ vpc_id: string; subnet_id: string }> {
  const its = { tenant_id, managed_by }
  const fields = { name: 'machines', tags: {}, managed_by, cidr: machinesCidr }
  const vpc = (await Vpc.findOne(its).lean()) ?? (await unlessMade(() => createVpc(tenant_id, fields)))
  const vpc_id = vpc?._id ?? (await Vpc.findOne(its).orFail().lean())._id
  const within = { ...fields, vpc_id, gateway_ip: null, nat: true }
  const subnet =
    (await Subnet.findOne(its).lean()) ?? (await unlessMade(() => createSubnet(tenant_id, within)))
  return { vpc_id, subnet_id: subnet?._id ?? (await Subnet.findOne(its).orFail().lean())._id }
}

/** Undefined if a call at the same time has made it. */
async function unlessMade<T>(make: () => Promise<T>): Promise<T | undefined> {
  try {
    return await make()
  } catch (error) {
    if (error instanceof NameTaken) return undefined
    throw error
  }
}

/** Deletes the records of the network. Hosts drop a VPC without members, so nothing of it is on a host. Idempotent. */
export async function deleteManagedNetwork({ _id: managed_by, tenant_id }: Server): Promise<void> {
  await transaction(async () => {
    for (const { _id } of await Subnet.find({ tenant_id, managed_by }, { _id: 1 }).lean())
      await Subnet.deleteOne({ _id, tenant_id })
    for (const { _id } of await Vpc.find({ tenant_id, managed_by }, { _id: 1 }).lean())
      await Vpc.deleteOne({ _id, tenant_id })
  }, tenant_id)
}
