import { z } from 'zod'
import {
  acceptLoadBalancer,
  acceptLoadBalancerReschedule,
  acceptLoadBalancerUpdate,
} from '../../models/network/load-balancer-acceptance.ts'
import {
  type LoadBalancerDocument,
  loadBalancerResource,
  loadBalancerStates,
} from '../../models/network/load-balancers.ts'
import { mine } from '../../models/resources.ts'
import { accepting } from '../accept.ts'
import { activityList } from '../activity.ts'
import { mayChooseHost } from '../compute/hosts.ts'
import { byId, commonView, Id, Name, resourceView, Tags } from '../fields.ts'
import { operation } from '../operation.ts'
import { resourceOperations } from '../resources.ts'
import { HealthCheck, Listener, PortNumber, Protocol } from './load-balancer-fields.ts'

/** The fields that an update can change. */
const changeable = {
  tags: Tags,
  listeners: z.array(Listener).min(1).max(20),
  health_check: HealthCheck,
  replicas: z
    .int()
    .min(1)
    .max(2)
    .describe('2: on two hosts, so that the load balancer survives the loss of one'),
  log_cap_mib: z.int().min(1).max(1024),
}

const LoadBalancerView = z
  .strictObject({
    ...resourceView,
    status: z.enum(loadBalancerStates.all),
    subnet_id: Id,
    vpc_id: Id,
    listeners: z.array(Listener),
    health_check: HealthCheck,
    replicas: z.int(),
    log_cap_mib: z.int(),
    endpoints: z
      .array(
        z.strictObject({
          host_id: Id,
          host_address: z.string(),
          ip_address: z.string().describe('The address in the VPC'),
          state: z.enum(['starting', 'running', 'broken', 'unreachable']),
          ports: z.array(z.strictObject({ port: PortNumber, host_port: PortNumber, protocol: Protocol })),
        }),
      )
      .describe('Where clients reach each replica'),
  })
  .meta({ id: 'LoadBalancer' })

const toView = (balancer: LoadBalancerDocument): z.output<typeof LoadBalancerView> => ({
  ...commonView(balancer),
  subnet_id: balancer.subnet_id,
  vpc_id: balancer.vpc_id,
  listeners: balancer.listeners,
  health_check: balancer.health_check,
  replicas: balancer.replicas,
  log_cap_mib: balancer.log_cap_mib,
  endpoints: balancer.endpoints.map(({ host_id, host_address, ip_address, state, ports }) => ({
    host_id,
    host_address,
    ip_address,
    state,
    ports: ports.map(({ port, host_port, protocol }) => ({ port, host_port, protocol })),
  })),
})

const common = resourceOperations({
  resource: loadBalancerResource,
  plural: 'load_balancers',
  deletion: 'Delete a load balancer with its routes',
  view: LoadBalancerView,
  toView,
})

export const loadBalancers = [
  common.list,

  operation({
    method: 'POST',
    path: '/api/v1/load-balancers',
    permission: 'load_balancers:create',
    summary: 'Create a load balancer in a subnet and start it',
    body: z.strictObject({
      ...changeable,
      name: Name,
      subnet_id: Id,
      tags: Tags.default({}),
      health_check: HealthCheck.prefault({}),
      replicas: changeable.replicas.default(1),
      log_cap_mib: changeable.log_cap_mib.default(64),
    }),
    responses: { 202: LoadBalancerView },
    handle: ({ caller, body }) => accepting(caller, toView, (by) => acceptLoadBalancer(by, body)),
  }),

  common.get,

  operation({
    method: 'PUT',
    path: '/api/v1/load-balancers/{id}',
    permission: 'load_balancers:update',
    summary: 'Update a load balancer without dropping a connection',
    params: byId,
    body: z.strictObject(changeable).partial(),
    responses: { 202: LoadBalancerView },
    handle: ({ caller, params, body }) =>
      accepting(caller, toView, (by) => acceptLoadBalancerUpdate(by, params.id, body)),
  }),

  common.delete,

  operation({
    method: 'POST',
    path: '/api/v1/load-balancers/{id}/reschedule',
    permission: 'load_balancers:update',
    summary: 'Move a replica of a load balancer to another host, where it gets other host ports',
    params: byId,
    body: z
      .strictObject({
        from_host_id: Id.nullable().default(null).describe('Default: the host of the oldest replica'),
        host_id: Id.nullable().default(null).describe('Operators only: the host to move to'),
      })
      .default({ from_host_id: null, host_id: null }),
    responses: { 202: LoadBalancerView },
    handle: ({ caller, params, body }) => {
      mayChooseHost(caller, body.host_id)
      return accepting(caller, toView, (by) => acceptLoadBalancerReschedule(by, params.id, body))
    },
  }),

  activityList({
    path: '/api/v1/load-balancers/{id}/activity',
    permission: 'load_balancers:read',
    summary:
      'List what happened to a load balancer: its creation, failed operations, health changes, refused routes, moves',
    ownerOf: (caller, id) => mine(loadBalancerResource, caller, id),
  }),
]
