import { HostLoadBalancers } from '../../lib/load-balancer-protocol.ts'
import { loadBalancersOf } from '../../models/network/host-load-balancers.ts'
import { own } from '../compute/host-protocol.ts'
import { byId } from '../fields.ts'
import { hostsOnly, operation } from '../operation.ts'

// The internal API for load balancers.

export const loadBalancerProtocol = [
  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/load-balancers',
    permission: hostsOnly('only the host that runs a load balancer gets its private keys'),
    summary: 'Get all load balancers wanted on a host, with their private keys',
    params: byId,
    responses: { 200: HostLoadBalancers },
    handle: async ({ caller, params }) => {
      own(caller, params.id)
      return loadBalancersOf(params.id)
    },
  }),
]
