import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:tls'
import { AcmeChallenge, CertificateOrder } from '../../models/network/certificate-orders.ts'
import type { CertificateBody, LoadBalancerBody } from './client.ts'
import { openPebble, type Pebble } from './pebble.ts'
import { makeTenant, type TestTenant } from './tenants.ts'
import { makeSubnet, makeVpc } from './vpcs.ts'

// A tenant whose load balancer answers the challenges of an ACME server.

export interface AcmeWorld {
  tenant: TestTenant
  pebble: Pebble
  lb: LoadBalancerBody
  subnet: string
  address: string
  httpPort: number
}

/** `of`: the tenant; by default a new one. */
export async function makeAcmeWorld(of?: TestTenant): Promise<AcmeWorld> {
  const tenant = of ?? (await makeTenant({ max_vpcs: 100 }))
  const subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  const lb = await tenant.owner.loadBalancers.make(subnet)
  const [endpoint] = lb.endpoints
  const address = endpoint?.host_address ?? ''
  const httpPort = endpoint?.ports[0]?.host_port ?? 0
  return { tenant, subnet, lb, address, httpPort, pebble: await openPebble(address, httpPort) }
}

/** What orders of a tenant have left in the records. */
export async function leftOf({ id: tenant_id }: TestTenant): Promise<{ orders: number; challenges: number }> {
  return {
    orders: await CertificateOrder.countDocuments({ tenant_id }),
    challenges: await AcmeChallenge.countDocuments({ tenant_id }),
  }
}
export const nothingLeft = { orders: 0, challenges: 0 }

/** Gives the load balancer an https listener with these certificates, and returns its host port. */
export async function serve({ tenant, lb, httpPort }: AcmeWorld, ids: string[]): Promise<number> {
  const { operation } = await tenant.owner.loadBalancers.update(lb.id, {
    listeners: [
      { port: 80, protocol: 'http', host_port: httpPort },
      { port: 443, protocol: 'https', certificate_ids: ids },
    ],
  })
  await operation.success()
  const { endpoints } = await tenant.owner.loadBalancers.get(lb.id)
  return endpoints[0]?.ports.find(({ port }) => port === 443)?.host_port ?? 0
}

/** The SHA-256 of the certificate that a client gets for this name. The client must trust it. */
export async function servedTo(host: string, port: number, servername: string, ca: string): Promise<string> {
  const socket = connect({ host, port, servername, ca })
  await once(socket, 'secureConnect')
  const { raw } = socket.getPeerCertificate()
  socket.destroy()
  return createHash('sha256').update(raw).digest('hex')
}

export const issued = async (tenant: TestTenant, ...domains: string[]): Promise<CertificateBody> => {
  const { id, operation } = await tenant.owner.certificates.order(...domains)
  await operation.success()
  return tenant.owner.certificates.get(id)
}
