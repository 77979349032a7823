import { z } from 'zod'
import { NotFound, Problem } from '../../lib/problem.ts'
import { transaction } from '../../models/database.ts'
import { claimDisk, needsOwnPath } from '../../models/storage/attachments.ts'
import { begin } from '../accept.ts'
import { byId, Id } from '../fields.ts'
import { type Operation, operation } from '../operation.ts'
import { DiskMount, maxDisks } from '../storage/mounts.ts'
import { instanceOf, type ShownInstance } from './instances.ts'

/** Disks in instances of a kind. */
export function instanceDisks(shown: ShownInstance): Operation[] {
  const { plural, kind, view } = shown
  const { title } = kind
  const words = shown.disks ?? {
    attach: `Mount a disk in a ${title}: at once where it runs, else at its start`,
    detach: `Unmount a disk; refused while the ${title} has files open there`,
  }

  return [
    operation({
      method: 'POST',
      path: `/api/v1/${plural}/{id}/disks`,
      permission: `${plural}:update`,
      summary: words.attach,
      params: byId,
      body: DiskMount,
      responses: { 202: view },
      handle: ({ caller, params, body }) =>
        // What is read and what is written are one: nobody changes the list meanwhile.
        transaction(async () => {
          const { disks } = await instanceOf(shown, caller, params.id)
          return begin(caller, shown, params.id, 'attach_disk', {
            input: body,
            set: { disks: [...disks, body] },
            reserve: async (instance) => {
              if (disks.length >= maxDisks)
                throw new Problem(
                  409,
                  'too_many_disks',
                  'Too many disks',
                  `A ${title} has at most ${maxDisks} disks`,
                )
              await claimDisk(kind, instance, body)
              needsOwnPath(disks, body)
            },
          })
        }, caller.tenant_id),
    }),

    operation({
      method: 'DELETE',
      path: `/api/v1/${plural}/{id}/disks/{disk_id}`,
      permission: `${plural}:update`,
      summary: words.detach,
      params: z.strictObject({ id: Id, disk_id: Id }),
      responses: { 202: view },
      handle: ({ caller, params: { id, disk_id } }) =>
        transaction(async () => {
          const { disks } = await instanceOf(shown, caller, id)
          const others = disks.filter((mount) => mount.disk_id !== disk_id)
          if (others.length === disks.length) throw new NotFound(`disk of the ${title}`)
          return begin(caller, shown, id, 'detach_disk', { input: { disk_id }, set: { disks: others } })
        }, caller.tenant_id),
    }),
  ]
}
