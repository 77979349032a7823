import { z } from 'zod'
import { placedKindNames, MachinesOfHost } from '../../lib/host-protocol.ts'
import { PermissionDenied } from '../../lib/problem.ts'
import {
  acceptEvacuation,
  createHost,
  Host,
  type HostDocument,
  hostOf,
  hostStates,
  setCordon,
} from '../../models/compute/hosts.ts'
import { deleteHost } from '../../models/compute/reservations.ts'
import { accepting } from '../accept.ts'
import { byId, Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'

const view = {
  id: Id,
  name: z.string(),
  status: z.enum(hostStates.all),
  status_reason: z.string().nullable(),
  operation_id: Id.nullable(),
  cordoned: z.boolean().describe('Whether the host takes no new instances'),
  address: z.string().nullable(),
  engine: z.strictObject({ name: z.string(), version: z.string() }).nullable(),
  machines: MachinesOfHost.nullable().describe('The engine for microVMs and VMs on this host'),
  tunnel: z
    .enum(['wireguard', 'none'])
    .nullable()
    .describe(
      'How traffic of VPCs passes between hosts, which must be the same on all hosts; null: it does not',
    ),
  kinds: z
    .array(z.enum(placedKindNames))
    .describe('Kinds of instances that this host can run, and whether it can run load balancers'),
  capacity: z.strictObject({ cpu_cores: z.number(), memory_mib: z.int(), disk_gib: z.int() }).nullable(),
  reserved: z.strictObject({ cpu_milli: z.int(), memory_mib: z.int(), disk_gib: z.int() }),
  last_report_at: Timestamp.nullable(),
  last_heard_at: Timestamp.nullable().describe(
    'The host’s last heartbeat; after 30 s without one the host is `unreachable`',
  ),
  engine_silent_since: Timestamp.nullable().describe(
    'When its container engine stopped answering; until it answers again, the host gets nothing new',
  ),
  created_at: Timestamp,
  updated_at: Timestamp,
}
const HostView = z.strictObject(view).meta({ id: 'Host' })
const WithToken = z
  .strictObject({
    ...view,
    token: z.string().describe('Shown once; set it as KEELSON_HOST_TOKEN on the new host'),
    token_expires_at: Timestamp,
  })
  .meta({ id: 'HostWithToken' })

const toView = (host: HostDocument): z.output<typeof HostView> => ({
  id: host._id,
  name: host.name,
  status: host.status,
  status_reason: host.status_reason,
  operation_id: host.operation_id,
  cordoned: host.cordoned,
  address: host.address,
  engine: host.engine,
  machines: host.machines,
  tunnel: host.underlay_address ? (host.tunnel_key ? 'wireguard' : 'none') : null,
  kinds: host.kinds,
  capacity: host.capacity,
  reserved: host.reserved,
  last_report_at: timeOrNull(host.last_report_at),
  last_heard_at: timeOrNull(host.last_heard_at),
  engine_silent_since: timeOrNull(host.engine_silent_since),
  created_at: time(host.created_at),
  updated_at: time(host.updated_at),
})

/** Throws PermissionDenied if a caller other than an operator chooses a host. */
export function mayChooseHost({ permissions }: Caller, hostId: string | null): void {
  if (hostId && !permissions.has('platform:hosts')) throw new PermissionDenied('platform:hosts')
}

export const hosts = [
  list({
    path: '/api/v1/platform/hosts',
    permission: 'platform:hosts',
    summary: 'List hosts',
    model: Host,
    view: HostView,
    toView,
    scope: () => ({}), // hosts belong to no tenant
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/hosts',
    permission: 'platform:hosts',
    summary: 'Register a host; it enrols itself with the one-time token',
    body: z.strictObject({ name: Name }),
    responses: { 201: WithToken },
    handle: async ({ body }) => {
      const { host, token, expires_at } = await createHost(body.name)
      return {
        location: `/api/v1/platform/hosts/${host._id}`,
        body: { ...toView(host), token, token_expires_at: time(expires_at) },
      }
    },
  }),

  operation({
    method: 'GET',
    path: '/api/v1/platform/hosts/{id}',
    permission: 'platform:hosts',
    summary: 'Get a host',
    params: byId,
    responses: { 200: HostView },
    handle: async ({ params }) => toView(await hostOf(params.id)),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/hosts/{id}/cordon',
    permission: 'platform:hosts',
    summary: 'Cordon a host: it takes no new instances, and keeps those it has',
    params: byId,
    responses: { 200: HostView },
    handle: async ({ params }) => toView(await setCordon(params.id, true)),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/hosts/{id}/uncordon',
    permission: 'platform:hosts',
    summary: 'Uncordon a host: it takes new instances again',
    params: byId,
    responses: { 200: HostView },
    handle: async ({ params }) => toView(await setCordon(params.id, false)),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/hosts/{id}/evacuate',
    permission: 'platform:hosts',
    summary: 'Cordon a host and move all its instances to other hosts, even if it does not answer',
    params: byId,
    responses: { 202: HostView },
    handle: ({ caller, params }) => accepting(caller, toView, (by) => acceptEvacuation(by, params.id)),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/platform/hosts/{id}',
    permission: 'platform:hosts',
    summary: 'Delete an empty host, and revoke its key',
    params: byId,
    responses: { 204: null },
    handle: async ({ params }) => deleteHost(params.id),
  }),
]
