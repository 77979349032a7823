import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import type { Origin } from '../models/identity/browsers.ts'
import type { ResourceDocument } from '../models/resources.ts'

// The types that many resources share.

export const Id = z.uuid().describe('UUIDv7')
export const byId = z.strictObject({ id: Id })

/** The query of a deletion of something that others may use. */
export const forced = z.strictObject({
  force: z
    .stringbool({ truthy: ['true'], falsy: ['false'] })
    .default(false)
    .describe('Delete it even if it is in use; what uses it then fails'),
})

export const Name = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/,
    'must be 1 to 63 of a-z, 0-9 and -, without a - at either end',
  )
  .describe('The name, unique per tenant and kind of resource')

/** Text of one line for people: nothing in it hides, turns or breaks what stands beside it. */
export const PlainText = z
  .string()
  .refine(
    (text) => !/[\p{Cc}\p{Bidi_Control}]/u.test(text),
    'must have no control or bidirectional characters',
  )

export const tagKey = /^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}$/
/** Stored with sorted keys, so that equal tags are equal documents. */
export const Tags = z
  .record(
    z.string().regex(tagKey, 'must be 1 to 63 of A-Z, a-z, 0-9, _, ., / and -, the first a letter or digit'),
    PlainText.max(255),
  )
  .refine((tags) => Object.keys(tags).length <= 50, 'must have at most 50 tags')
  .transform((tags) => Object.fromEntries(Object.entries(tags).toSorted(([a], [b]) => (a < b ? -1 : 1))))

export const Timestamp = z.iso.datetime().describe('ISO 8601, UTC, milliseconds')

/** The fields of every resource's view. */
export const resourceView = {
  id: Id,
  tenant_id: Id,
  name: z.string(),
  tags: z.record(z.string(), z.string()),
  status: z.string(),
  status_reason: z.string().nullable().describe('Why the last operation failed'),
  operation_id: Id.nullable().describe('The open operation'),
  managed_by: Id.nullable().describe('The resource of which it is a part, such as a deploy server'),
  created_at: Timestamp,
  updated_at: Timestamp,
}

/** The fields of `resourceView` for one resource. */
export const commonView = <State extends string>(document: ResourceDocument<State>) => ({
  id: document._id,
  tenant_id: document.tenant_id,
  name: document.name,
  tags: document.tags,
  status: document.status,
  status_reason: document.status_reason,
  operation_id: document.operation_id,
  managed_by: document.managed_by,
  created_at: time(document.created_at),
  updated_at: time(document.updated_at),
})

export const time = (date: Date): string => date.toISOString()
export const timeOrNull = (date: Date | null): string | null => date?.toISOString() ?? null

/** Aborts when the client has the answer, or has gone. */
export function closed(response: ServerResponse): AbortSignal {
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  return gone.signal
}

/** The origin of a request, as shown to its user. */
export const originOf = ({ socket, headers, ip }: IncomingMessage & { ip?: string | undefined }): Origin => ({
  address: ip ?? socket.remoteAddress ?? '', // `ip` respects trusted proxies
  user_agent: (headers['user-agent'] ?? '').slice(0, 200),
})

export const Email = z.email().max(254)
/** A new password. No part of it is cut off, however long it is. */
export const NewPassword = z.string().min(12).max(1024).describe('At least 12 characters')
