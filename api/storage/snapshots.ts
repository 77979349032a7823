import { z } from 'zod'
import { acceptRestore } from '../../models/storage/disk-acceptance.ts'
import { mine } from '../../models/resources.ts'
import { diskResource } from '../../models/storage/disks.ts'
import {
  acceptSnapshot,
  acceptSnapshotRemoval,
  Snapshot,
  type SnapshotDocument,
} from '../../models/storage/snapshots.ts'
import { accepting } from '../accept.ts'
import { byId, Id, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { shownDisk, SnapshotName } from './disks.ts'

const byName = z.strictObject({ id: Id, name: SnapshotName })

export const SnapshotView = z
  .strictObject({
    name: z.string(),
    status: z.enum(['creating', 'available']),
    size_gib: z.int().describe('Size of the disk at that moment'),
    used_bytes: z.int().nullable().describe('Bytes used on its host'),
    taken_at: Timestamp.nullable(),
    created_at: Timestamp,
  })
  .meta({ id: 'DiskSnapshot' })

export const toView = (snapshot: SnapshotDocument): z.output<typeof SnapshotView> => ({
  name: snapshot.name,
  status: snapshot.status,
  size_gib: snapshot.size_gib,
  used_bytes: snapshot.used_bytes,
  taken_at: timeOrNull(snapshot.taken_at),
  created_at: time(snapshot.created_at),
})

export const snapshots = [
  list({
    path: '/api/v1/disks/{id}/snapshots',
    permission: 'disks:read',
    summary: 'List the snapshots of a disk',
    params: byId,
    model: Snapshot,
    view: SnapshotView,
    toView,
    scope: async (caller, { id }) => ({
      tenant_id: caller.tenant_id,
      disk_id: (await mine(diskResource, caller, id))._id,
    }),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/disks/{id}/snapshots',
    permission: 'disks:update',
    summary: 'Take a snapshot of a disk, even while it is in use',
    params: byId,
    body: z.strictObject({ name: SnapshotName }),
    responses: { 202: shownDisk.view },
    handle: ({ caller, params, body }) =>
      accepting(caller, shownDisk.toView, (by) => acceptSnapshot(by, params.id, body)),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/disks/{id}/snapshots/{name}',
    permission: 'disks:update',
    summary: 'Delete a snapshot; disks created from it stay',
    params: byName,
    responses: { 202: shownDisk.view },
    handle: ({ caller, params: { id, name } }) =>
      accepting(caller, shownDisk.toView, (by) => acceptSnapshotRemoval(by, id, { name })),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/disks/{id}/snapshots/{name}/restore',
    permission: 'disks:restore',
    summary: 'Restore a snapshot to a new disk on the same host; the original disk is unchanged',
    params: byName,
    responses: {
      202: z.strictObject({
        disk_id: Id,
        new_disk_id: z.string(),
        new_disk_uuid: z.string(),
        status: z.string(),
      }),
    },
    handle: ({ caller, params: { id, name } }) =>
      accepting(
        caller,
        ({ _id, status }) => ({ disk_id: id, new_disk_id: _id, new_disk_uuid: _id, status }),
        (by) => acceptRestore(by, id, name),
      ),
  }),
]
