import { type Json, type Operation } from '../../support/client.ts'
import { makeVpc } from '../../support/vpcs.ts'
import { newNic, tenant, type Stories } from '../world.ts'

const { containers, owner } = tenant

export const networkStories: Stories = {
  'updateSubnet.available': async () => onSubnet('PUT', '', { nat: false }),
  'attachDhcpSubnet.available': async () => onSubnet('POST', '/dhcp-config', { domain_name: 'example' }),
  'detachDhcpSubnet.available': async () => onSubnet('DELETE', '/dhcp-config'),
  'deleteSubnet.deleted': async () =>
    (await owner.begin('DELETE', `/api/v1/subnets/${(await newNic()).subnet_id}`)).operation,
  'deleteVpc.deleted': async () =>
    (await owner.begin('DELETE', `/api/v1/vpcs/${(await makeVpc(tenant)).id}`)).operation,
}

/** Changes a subnet with a member. */
async function onSubnet(method: string, path: string, body?: Json): Promise<Operation> {
  const nic = await newNic()
  await containers.make({ nics: [nic] })
  return (await owner.begin(method, `/api/v1/subnets/${nic.subnet_id}${path}`, body)).operation
}
