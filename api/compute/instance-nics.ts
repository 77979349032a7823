import { z } from 'zod'
import { newId } from '../../lib/ids.ts'
import { mustHaveNic, takeNics } from '../../models/network/nics.ts'
import { begin } from '../accept.ts'
import { byId, Id } from '../fields.ts'
import { AskedNic } from '../network/fields.ts'
import { type Operation, operation } from '../operation.ts'
import type { ShownInstance } from './instances.ts'

/** NICs in instances of a kind. */
export const instanceNics = (
  shown: ShownInstance,
  { plural, kind: { kind, title, model, onNics, mayLoseNic }, view } = shown,
): Operation[] => [
  operation({
    method: 'POST',
    path: `/api/v1/${plural}/{id}/nics`,
    permission: `${plural}:update`,
    summary: `Attach a NIC, to a running ${title} too; its resolver follows at the next start, if this is its first`,
    params: byId,
    body: AskedNic,
    responses: { 202: view },
    handle: ({ caller, params, body }) => {
      const nic_id = newId()
      return begin(caller, shown, params.id, 'attach_nic', {
        input: { nic_id },
        reserve: async (instance) => {
          const { _id: id, name, tenant_id } = instance
          await takeNics({ id, kind, name, tenant_id }, [{ id: nic_id, ...body }])
          const more = await onNics?.(instance)
          if (more) await model.updateOne({ _id: id, tenant_id }, { $set: more })
        },
      })
    },
  }),

  operation({
    method: 'DELETE',
    path: `/api/v1/${plural}/{id}/nics/{nic_id}`,
    permission: `${plural}:update`,
    summary: `Detach a NIC, from a running ${title} too; its address is free again`,
    params: z.strictObject({ id: Id, nic_id: Id }),
    responses: { 202: view },
    handle: ({ caller, params }) =>
      begin(caller, shown, params.id, 'detach_nic', {
        input: { nic_id: params.nic_id },
        reserve: async (instance) => {
          await mustHaveNic({ id: instance._id, tenant_id: instance.tenant_id }, params.nic_id)
          mayLoseNic?.(instance)
        },
      }),
  }),
]
