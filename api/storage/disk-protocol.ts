import { z } from 'zod'
import { DiskTransfer, DiskWish } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import { noteStep } from '../../models/operations.ts'
import { Disk, type DiskDocument, openSource, sealSource } from '../../models/storage/disks.ts'
import { wishesOf } from '../../models/storage/observe.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { own } from '../compute/host-protocol.ts'
import { Id } from '../fields.ts'
import { type HostCaller, hostsOnly, operation } from '../operation.ts'

// What hosts ask and tell of their disks. A host reaches a disk only that it has, or that comes to it.

const byDisk = z.strictObject({ id: Id, disk_id: Id })
const path = '/internal/v1/hosts/{id}/disks/{disk_id}'

/** A disk in migration, for the host at this end of it. Throws NotFound. */
async function migrating(
  caller: HostCaller,
  { id, disk_id }: z.output<typeof byDisk>,
  end: 'host_id' | 'target_host_id',
): Promise<DiskDocument> {
  own(caller, id)
  const held = await Reservation.findOne({ _id: disk_id, [end]: id })
    .setOptions(everyTenant)
    .lean()
  const disk =
    held?.target_host_id &&
    (await Disk.findOne({ _id: disk_id, tenant_id: held.tenant_id, status: 'migrating' }).lean())
  if (!disk) throw new NotFound('migration')
  return disk
}

export const diskProtocol = [
  operation({
    method: 'GET',
    path,
    permission: hostsOnly('a host asks of its own disks'),
    summary: 'What is to be with a disk on this host',
    params: byDisk,
    // Null, said aloud: a host removes such a disk, and must not take some other 404 for it.
    responses: { 200: z.strictObject({ wish: DiskWish.nullable() }) },
    handle: async ({ caller, params: { id, disk_id } }) => {
      own(caller, id)
      const [wish = null] = await wishesOf(id, [disk_id])
      return { wish }
    },
  }),

  operation({
    method: 'PUT',
    path: `${path}/transfer`,
    permission: hostsOnly('the source of a migration says where it serves the disk, and by which key'),
    summary: 'Where the target of a migration finds the disk',
    params: byDisk,
    body: DiskTransfer,
    responses: { 204: null },
    handle: async ({ caller, params, body }) => {
      const { _id, tenant_id, operation_id } = await migrating(caller, params, 'host_id')
      const transfer_sealed = await sealSource(tenant_id, body)
      await Disk.updateOne({ _id, tenant_id, operation_id }, { $set: { transfer_sealed } })
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/transfer`,
    permission: hostsOnly('the key of a migration goes to the host that pulls the disk, and nowhere else'),
    summary: 'Where this host finds a disk that comes to it',
    params: byDisk,
    responses: { 200: DiskTransfer },
    handle: async ({ caller, params }) => {
      const disk = await migrating(caller, params, 'target_host_id')
      if (disk.transfer_sealed === '-') throw new NotFound('transfer')
      return openSource(disk)
    },
  }),

  operation({
    method: 'POST',
    path: `${path}/progress`,
    permission: hostsOnly('the target of a migration says how far it is'),
    summary: 'How much of a disk has come',
    params: byDisk,
    body: z.strictObject({ percent: z.number().min(0).max(100) }),
    responses: { 204: null },
    handle: async ({ caller, params, body }) => {
      const { operation_id, name } = await migrating(caller, params, 'target_host_id')
      if (operation_id) await noteStep(operation_id, `copying disk ${name}: ${Math.floor(body.percent)} %`)
    },
  }),
]
