import { z } from 'zod'
import { acceptAttachNic, acceptDetachNic } from '../../models/compute/instance-acceptance.ts'
import { accepting } from '../accept.ts'
import { byId, Id } from '../fields.ts'
import { AskedNic } from '../network/fields.ts'
import { type Operation, operation } from '../operation.ts'
import type { ShownInstance } from './instances.ts'

/** The operations that attach and detach NICs, for one kind of instance. */
export const instanceNics = (
  shown: ShownInstance,
  { plural, kind, kind: { title }, view, toView } = shown,
): Operation[] => [
  operation({
    method: 'POST',
    path: `/api/v1/${plural}/{id}/nics`,
    permission: `${plural}:update`,
    summary: `Attach a NIC to a running or stopped ${title}; the first NIC sets the resolver at the next start`,
    params: byId,
    body: AskedNic,
    responses: { 202: view },
    handle: ({ caller, params, body }) =>
      accepting(caller, toView, (by) => acceptAttachNic(kind, by, params.id, body)),
  }),

  operation({
    method: 'DELETE',
    path: `/api/v1/${plural}/{id}/nics/{nic_id}`,
    permission: `${plural}:update`,
    summary: `Detach a NIC from a running or stopped ${title}, and free its address`,
    params: z.strictObject({ id: Id, nic_id: Id }),
    responses: { 202: view },
    handle: ({ caller, params: { id, nic_id } }) =>
      accepting(caller, toView, (by) => acceptDetachNic(kind, by, id, { nic_id })),
  }),
]
