import { z } from 'zod'
import { acceptAttachDisk, acceptDetachDisk } from '../../models/compute/instance-acceptance.ts'
import { accepting } from '../accept.ts'
import { byId, Id } from '../fields.ts'
import { type Operation, operation } from '../operation.ts'
import { DiskMount } from '../storage/mounts.ts'
import type { ShownInstance } from './instances.ts'

/** The operations that attach and detach disks, for one kind of instance. */
export function instanceDisks(shown: ShownInstance): Operation[] {
  const { plural, kind, view, toView } = shown
  const { title } = kind
  const words = shown.disks ?? {
    attach: `Attach a disk to a ${title}; a running ${title} mounts it at once, a stopped one at its next start`,
    detach: `Detach a disk from a ${title}, unless files on it are open`,
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
        accepting(caller, toView, (by) => acceptAttachDisk(kind, by, params.id, body)),
    }),

    operation({
      method: 'DELETE',
      path: `/api/v1/${plural}/{id}/disks/{disk_id}`,
      permission: `${plural}:update`,
      summary: words.detach,
      params: z.strictObject({ id: Id, disk_id: Id }),
      responses: { 202: view },
      handle: ({ caller, params: { id, disk_id } }) =>
        accepting(caller, toView, (by) => acceptDetachDisk(kind, by, id, { disk_id })),
    }),
  ]
}
