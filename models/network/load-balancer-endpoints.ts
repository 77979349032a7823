import { Host } from '../compute/hosts.ts'
import { everyTenant } from '../tenant-scope.ts'
import {
  addressesOf,
  type Endpoint,
  LoadBalancer,
  type LoadBalancerDocument,
  replicasOf,
} from './load-balancers.ts'

/** Where a load balancer is reached now: one entry for each replica that has a host. */
export async function endpointsOf(id: string): Promise<Endpoint[]> {
  const replicas = await replicasOf(id)
  const [addresses, hosts] = await Promise.all([
    addressesOf(replicas.map(({ _id }) => _id)),
    Host.find({ _id: { $in: replicas.map(({ host_id }) => host_id) } }, { address: 1 }).lean(),
  ])
  const hostAddresses = new Map(hosts.map(({ _id, address }) => [_id, address]))
  return replicas.flatMap(({ _id, host_id, state, ports }) =>
    host_id === null
      ? []
      : [
          {
            host_id,
            host_address: hostAddresses.get(host_id) ?? '',
            ip_address: addresses.get(_id) ?? '',
            state,
            ports,
          },
        ],
  )
}

const ownPorts = { http: 80, https: 443 }

/** The URL of a host name at the load balancer's first listener for this protocol. Null if none is published. */
export function urlAt(
  { endpoints }: Pick<LoadBalancerDocument, 'endpoints'>,
  protocol: 'http' | 'https',
  hostName: string,
): string | null {
  const port = endpoints[0]?.ports.find((one) => one.protocol === protocol)?.host_port
  if (port === undefined) return null
  return `${protocol}://${hostName}${port === ownPorts[protocol] ? '' : `:${port}`}`
}

/** Copies the endpoints to the load balancer's record, for its view. */
export async function copyEndpoints(id: string): Promise<void> {
  const endpoints = await endpointsOf(id)
  await LoadBalancer.updateOne({ _id: id }, { $set: { endpoints } }).setOptions({
    ...everyTenant,
    timestamps: false,
  })
}
