import { z } from 'zod'
import { instanceKindNames, MachinesOfHost } from '../../lib/host-protocol.ts'
import { NameTaken, NotFound, PermissionDenied } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../../models/database.ts'
import {
  Host,
  type HostDocument,
  hostResource,
  hostStates,
  newEnrolToken,
  readyToEvacuate,
  setCordon,
} from '../../models/compute/hosts.ts'
import { deleteHost } from '../../models/compute/reservations.ts'
import { begin } from '../accept.ts'
import { byId, Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'

const HostView = z
  .strictObject({
    id: Id,
    name: z.string(),
    status: z.enum(hostStates.all),
    status_reason: z.string().nullable(),
    operation_id: Id.nullable(),
    cordoned: z.boolean().describe('Takes no new instances'),
    address: z.string().nullable(),
    engine: z.strictObject({ name: z.string(), version: z.string() }).nullable(),
    machines: MachinesOfHost.nullable().describe('What runs microVMs and VMs on it'),
    kinds: z.array(z.enum(instanceKindNames)).describe('What can run on it'),
    capacity: z.strictObject({ cpu_cores: z.number(), memory_mib: z.int(), disk_gib: z.int() }).nullable(),
    reserved: z.strictObject({ cpu_milli: z.int(), memory_mib: z.int(), disk_gib: z.int() }),
    last_report_at: Timestamp.nullable(),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'Host' })

const toView = (host: HostDocument): z.output<typeof HostView> => ({
  id: host._id,
  name: host.name,
  status: host.status,
  status_reason: host.status_reason,
  operation_id: host.operation_id,
  cordoned: host.cordoned,
  address: host.address,
  engine: host.engine,
  machines: host.machines ?? null,
  kinds: host.kinds ?? ['container'], // not in records of before machines
  capacity: host.capacity,
  reserved: { ...host.reserved, disk_gib: host.reserved.disk_gib ?? 0 }, // not in records of before disks
  last_report_at: timeOrNull(host.last_report_at),
  created_at: time(host.created_at),
  updated_at: time(host.updated_at),
})

/** Where things are is the platform's to say, unless an operator does. Throws PermissionDenied. */
export function mayChooseHost({ permissions }: Caller, hostId: string | null): void {
  if (hostId && !permissions.has('platform:hosts')) throw new PermissionDenied('platform:hosts')
}

export const hosts = [
  list({
    path: '/api/v1/platform/hosts',
    permission: 'platform:hosts',
    summary: 'List the platform’s hosts',
    model: Host,
    view: HostView,
    toView,
    scope: () => ({}), // hosts belong to no tenant
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/hosts',
    permission: 'platform:hosts',
    summary: 'Announce a host; it enrols itself with the token, once',
    body: z.strictObject({ name: Name }),
    responses: {
      201: z.strictObject({
        host: HostView,
        token: z.string().describe('Shown once; KEELSON_HOST_TOKEN of the new host'),
        expires_at: Timestamp,
      }),
    },
    handle: async ({ body }) => {
      const { token, token_hash, token_expires_at } = newEnrolToken()
      try {
        const host = await new Host({
          name: body.name,
          status: 'pending',
          token_hash,
          token_expires_at,
        }).save()
        return {
          location: `/api/v1/platform/hosts/${host._id}`,
          body: { host: toView(host.toObject()), token, expires_at: time(token_expires_at) },
        }
      } catch (error) {
        if (isDuplicateKey(error)) throw new NameTaken('host', body.name)
        throw error
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
    handle: async ({ params }) => {
      const host = await Host.findById(params.id).lean()
      if (!host) throw new NotFound('host')
      return toView(host)
    },
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/hosts/{id}/cordon',
    permission: 'platform:hosts',
    summary: 'Close a host to new instances; those on it stay',
    params: byId,
    responses: { 200: HostView },
    handle: async ({ params }) => toView(await setCordon(params.id, true)),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/hosts/{id}/uncordon',
    permission: 'platform:hosts',
    summary: 'Open a host to new instances again',
    params: byId,
    responses: { 200: HostView },
    handle: async ({ params }) => toView(await setCordon(params.id, false)),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/hosts/{id}/evacuate',
    permission: 'platform:hosts',
    summary: 'Close a host, and move all its instances to others, also from a host that does not answer',
    params: byId,
    responses: { 202: HostView },
    handle: async ({ caller, params }) =>
      transaction(async () => {
        await readyToEvacuate(params.id, caller.tenant_id)
        return begin(caller, { resource: hostResource, view: HostView, toView }, params.id, 'evacuate')
      }, params.id),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/platform/hosts/{id}',
    permission: 'platform:hosts',
    summary: 'Delete a host that nothing is on; its key is good no longer',
    params: byId,
    responses: { 204: null },
    handle: async ({ params }) => deleteHost(params.id),
  }),
]
