import { newId } from '../../lib/ids.ts'
import { type Accepted, type Client, type ContainerBody, type Json, shell } from './client.ts'
import type { TestTenant } from './tenants.ts'

// VPCs and subnets through the API, and containers in them that return their name on port 80.

const unique = (kind: string): string => `${kind}-${newId().slice(-12)}`

async function created(client: Client, path: string, body: Json): Promise<Json & { id: string }> {
  const answer = await client.ask('POST', path, body)
  if (answer.status !== 201)
    throw new Error(`POST ${path} -> ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body as Json & { id: string }
}

export const makeVpc = ({ owner }: TestTenant, over: Json = {}) =>
  created(owner, '/api/v1/vpcs', { name: unique('vpc'), cidr: '10.0.0.0/16', ...over })

export const makeSubnet = ({ owner }: TestTenant, vpc_id: string, over: Json = {}) =>
  created(owner, '/api/v1/subnets', { name: unique('subnet'), vpc_id, cidr: '10.0.0.0/24', ...over })

export interface NicBody {
  id: string
  subnet_id: string
  mac_address: string
  ip_address: string
}
export type Member = ContainerBody & { nics: NicBody[] }

/** Returns the host name on port 80. */
export const server = 'mkdir /tmp/www; hostname >/tmp/www/index.html; exec httpd -f -p 80 -h /tmp/www'

export const beginMember = (tenant: TestTenant, subnet_id: string, over: Json = {}): Promise<Accepted> =>
  tenant.containers.create({ ...shell(server), nics: [{ subnet_id }], ...over })

export async function makeMember(tenant: TestTenant, subnet_id: string, over: Json = {}): Promise<Member> {
  const { id, operation } = await beginMember(tenant, subnet_id, over)
  await operation.success()
  return (await tenant.containers.get(id)) as Member
}

export const addressOf = ({ nics }: Member): string => nics[0]?.ip_address ?? ''
