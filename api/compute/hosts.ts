import { z } from 'zod'
import { NameTaken, NotFound } from '../../lib/problem.ts'
import { isDuplicateKey } from '../../models/database.ts'
import { Host, type HostDocument, newEnrolToken } from '../../models/compute/hosts.ts'
import { byId, Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'

const HostView = z
  .strictObject({
    id: Id,
    name: z.string(),
    status: z.enum(['pending', 'active']),
    cordoned: z.boolean(),
    address: z.string().nullable(),
    engine: z.strictObject({ name: z.string(), version: z.string() }).nullable(),
    capacity: z.strictObject({ cpu_cores: z.number(), memory_mib: z.int(), disk_gib: z.int() }).nullable(),
    reserved: z.strictObject({ cpu_milli: z.int(), memory_mib: z.int() }),
    last_report_at: Timestamp.nullable(),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'Host' })

const toView = (host: HostDocument): z.output<typeof HostView> => ({
  id: host._id,
  name: host.name,
  status: host.status,
  cordoned: host.cordoned,
  address: host.address,
  engine: host.engine,
  capacity: host.capacity,
  reserved: host.reserved,
  last_report_at: timeOrNull(host.last_report_at),
  created_at: time(host.created_at),
  updated_at: time(host.updated_at),
})

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
]
