import { z } from 'zod'
import { instanceKindNames } from '../../lib/host-protocol.ts'
import { mine } from '../../models/resources.ts'
import { acceptDisk, acceptDiskUpdate } from '../../models/storage/disk-acceptance.ts'
import { type DiskDocument, diskResource, diskStates } from '../../models/storage/disks.ts'
import { acceptMigration } from '../../models/storage/moves.ts'
import { accepting } from '../accept.ts'
import { activityList } from '../activity.ts'
import { mayChooseHost } from '../compute/hosts.ts'
import { byId, Id, Name, commonView, resourceView, Tags } from '../fields.ts'
import { operation } from '../operation.ts'
import { resourceOperations } from '../resources.ts'

// The minimum for XFS, and a sensible maximum for one file.
const SizeGib = z.int().min(1).max(65_536)
/** A file name on the disk's host. */
export const SnapshotName = z
  .string()
  .regex(/^[a-zA-Z0-9][\w.-]{0,62}$/, 'must be 1 to 63 of A-Z, a-z, 0-9, _, . and -')

const CreateDisk = z
  .strictObject({
    name: Name,
    size_gib: SizeGib.optional().describe('Default: the snapshot’s size'),
    from_snapshot: z
      .strictObject({ disk_id: Id, name: SnapshotName })
      .nullable()
      .default(null)
      .describe('Start with the contents of this snapshot, on the same host'),
    tags: Tags.default({}),
    host_id: Id.nullable().default(null).describe('Operators only: the host to run on'),
  })
  .refine(({ size_gib, from_snapshot }) => size_gib !== undefined || from_snapshot, {
    path: ['size_gib'],
    message: 'is required without from_snapshot',
  })

const DiskView = z
  .strictObject({
    ...resourceView,
    status: z.enum(diskStates.all),
    size_gib: z.int(),
    host_id: Id.nullable(),
    attached_to: z
      .strictObject({
        kind: z.enum(instanceKindNames),
        id: Id,
        mount_path: z.string(),
        read_only: z.boolean(),
      })
      .nullable(),
    written_by_machine: z
      .boolean()
      .describe(
        'Whether a microVM or VM could write to the disk, or to the disk that it is a copy of; a container cannot attach such a disk',
      ),
    condition: z
      .enum(['sound', 'broken', 'failing', 'missing'])
      .describe('The disk’s condition as its host sees it'),
  })
  .meta({ id: 'Disk' })

export const shownDisk = {
  resource: diskResource,
  plural: 'disks' as const,
  deletion: 'Delete a detached disk and its snapshots',
  view: DiskView,
  toView: (disk: DiskDocument): z.output<typeof DiskView> => ({
    ...commonView(disk),
    size_gib: disk.size_gib,
    host_id: disk.host_id,
    attached_to: disk.attached_to && {
      kind: disk.attached_to.kind,
      id: disk.attached_to.id,
      mount_path: disk.attached_to.mount_path,
      read_only: disk.attached_to.read_only,
    },
    written_by_machine: disk.written_by_machine,
    condition: disk.condition,
  }),
}
const common = resourceOperations(shownDisk)

export const disks = [
  common.list,

  operation({
    method: 'POST',
    path: '/api/v1/disks',
    permission: 'disks:create',
    summary: 'Create a disk, empty or from a snapshot',
    body: CreateDisk,
    responses: { 202: DiskView },
    handle: ({ caller, body }) => {
      mayChooseHost(caller, body.host_id)
      return accepting(caller, shownDisk.toView, (by) => acceptDisk(by, body))
    },
  }),

  common.get,

  activityList({
    path: '/api/v1/disks/{id}/activity',
    permission: 'disks:read',
    summary: 'List what happened to a disk: its creation, failed operations, changes of its condition',
    ownerOf: (caller, id) => mine(diskResource, caller, id),
  }),

  operation({
    method: 'PUT',
    path: '/api/v1/disks/{id}',
    permission: 'disks:update',
    summary: 'Update a disk; it can grow while in use, and cannot shrink',
    params: byId,
    body: z.strictObject({ size_gib: SizeGib, tags: Tags }).partial(),
    responses: { 202: DiskView },
    handle: ({ caller, params, body }) =>
      accepting(caller, shownDisk.toView, (by) => acceptDiskUpdate(by, params.id, body)),
  }),

  common.delete,

  operation({
    method: 'POST',
    path: '/api/v1/disks/{id}/migrate',
    permission: 'disks:update',
    summary: 'Migrate a disk to another host; an instance that has it must be stopped first',
    params: byId,
    body: z.strictObject({
      target_host_id: Id.nullable()
        .default(null)
        .describe('Operators only: the host to move to; by default the platform chooses'),
      bandwidth_mib_per_sec: z
        .int()
        .min(1)
        .max(100_000)
        .nullable()
        .default(null)
        .describe('Default: unlimited'),
    }),
    responses: { 202: null },
    handle: ({ caller, params, body }) => {
      mayChooseHost(caller, body.target_host_id)
      return accepting(
        caller,
        () => undefined,
        (by) => acceptMigration(by, params.id, body),
      )
    },
  }),
]
