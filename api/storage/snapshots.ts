import { z } from 'zod'
import { addSnapshot, Snapshot, type SnapshotDocument, snapshotOf } from '../../models/storage/snapshots.ts'
import { newId } from '../../lib/ids.ts'
import { begin } from '../accept.ts'
import { byId, Id, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { createFrom, diskOf, shownDisk, SnapshotName } from './disks.ts'

const byName = z.strictObject({ id: Id, name: SnapshotName })

const SnapshotView = z
  .strictObject({
    name: z.string(),
    status: z.enum(['creating', 'available']),
    size_gib: z.int().describe('Of the disk at that moment'),
    used_bytes: z.int().nullable().describe('What it takes on its host'),
    taken_at: Timestamp.nullable(),
    created_at: Timestamp,
  })
  .meta({ id: 'DiskSnapshot' })

const toView = (snapshot: SnapshotDocument): z.output<typeof SnapshotView> => ({
  name: snapshot.name,
  status: snapshot.status,
  size_gib: snapshot.size_gib,
  used_bytes: snapshot.used_bytes,
  taken_at: timeOrNull(snapshot.taken_at),
  created_at: time(snapshot.created_at),
})

/** A name for what is restored, which says where it is from. */
const restoredName = (disk: string): string => `${disk.slice(0, 40)}-restored-${newId().slice(-12)}`

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
      disk_id: (await diskOf(caller, id))._id,
    }),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/disks/{id}/snapshots',
    permission: 'disks:update',
    summary: 'Keep what a disk holds at this moment, also while it is in use',
    params: byId,
    body: z.strictObject({ name: SnapshotName }),
    responses: { 202: shownDisk.view },
    handle: ({ caller, params, body }) =>
      begin(caller, shownDisk, params.id, 'snapshot', {
        input: body,
        reserve: (disk) => addSnapshot(disk, body.name),
      }),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/disks/{id}/snapshots/{name}',
    permission: 'disks:update',
    summary: 'Delete a snapshot; disks that were made from it stay',
    params: byName,
    responses: { 202: shownDisk.view },
    handle: ({ caller, params: { id, name } }) =>
      begin(caller, shownDisk, id, 'remove_snapshot', {
        input: { name },
        reserve: async (disk) => {
          await snapshotOf(disk, name)
        },
      }),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/disks/{id}/snapshots/{name}/restore',
    permission: 'disks:restore',
    summary: 'Make a new disk of a snapshot, on the same host; the disk itself stays as it is',
    params: byName,
    responses: {
      202: z.strictObject({
        disk_id: Id,
        new_disk_id: z.string(),
        new_disk_uuid: z.string(),
        status: z.string(),
      }),
    },
    handle: async ({ caller, params: { id, name } }) => {
      const disk = await diskOf(caller, id)
      const { operation_id, body } = await createFrom(caller, {
        name: restoredName(disk.name),
        tags: disk.tags,
        from_snapshot: { disk_id: id, name },
        host_id: null,
      })
      return {
        operation_id,
        body: { disk_id: id, new_disk_id: body.id, new_disk_uuid: body.id, status: body.status },
      }
    },
  }),
]
