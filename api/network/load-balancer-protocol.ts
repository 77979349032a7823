import {
  countersBodyKib,
  HostLoadBalancerSamples,
  HostLoadBalancers,
} from '../../lib/load-balancer-protocol.ts'
import { loadBalancersOf } from '../../models/network/host-load-balancers.ts'
import { recordLoadBalancerSamples } from '../../models/network/load-balancer-samples.ts'
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

  operation({
    method: 'POST',
    path: '/internal/v1/hosts/{id}/load-balancer-samples',
    permission: hostsOnly('a host reports about its own load balancers'),
    summary: 'Report what the load balancers of a host have served',
    params: byId,
    body: HostLoadBalancerSamples,
    json_kib: countersBodyKib,
    responses: { 204: null },
    handle: async ({ caller, params, body }) => {
      own(caller, params.id)
      await recordLoadBalancerSamples(params.id, body.samples)
    },
  }),
]
