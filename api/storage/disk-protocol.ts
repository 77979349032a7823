import { z } from 'zod'
import { DiskTransfer, WantedDisk } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { noteStep } from '../../models/operations.ts'
import { type DiskDocument, openSource } from '../../models/storage/disks.ts'
import { migratingOn, noteSource } from '../../models/storage/moves.ts'
import { wantedDisks } from '../../models/storage/observe.ts'
import { own } from '../compute/host-protocol.ts'
import { Id } from '../fields.ts'
import { type HostCaller, hostsOnly, operation } from '../operation.ts'

// The internal API for disks. A host can access only disks that it has or receives.

const byDisk = z.strictObject({ id: Id, disk_id: Id })
const path = '/internal/v1/hosts/{id}/disks/{disk_id}'

/** The migrating disk of which the caller is the source or target host. Throws NotFound. */
function migrating(
  caller: HostCaller,
  { id, disk_id }: z.output<typeof byDisk>,
  end: 'host_id' | 'target_host_id',
): Promise<DiskDocument> {
  own(caller, id)
  return migratingOn(id, disk_id, end)
}

export const diskProtocol = [
  operation({
    method: 'GET',
    path,
    permission: hostsOnly('a host asks about its own disks'),
    summary: 'Get what is wanted of a disk on this host',
    params: byDisk,
    // Null, not a 404: the host removes an unwanted disk, and must not mistake another 404 for this answer.
    responses: { 200: z.strictObject({ wanted: WantedDisk.nullable() }) },
    handle: async ({ caller, params: { id, disk_id } }) => {
      own(caller, id)
      const [wanted = null] = await wantedDisks(id, [disk_id])
      return { wanted }
    },
  }),

  operation({
    method: 'PUT',
    path: `${path}/transfer`,
    permission: hostsOnly('the source of a migration says where it serves the disk, and with which key'),
    summary: 'Set the source of a disk in migration',
    params: byDisk,
    body: DiskTransfer,
    responses: { 204: null },
    handle: async ({ caller, params, body }) => noteSource(await migrating(caller, params, 'host_id'), body),
  }),

  operation({
    method: 'GET',
    path: `${path}/transfer`,
    permission: hostsOnly('only the host that pulls the disk gets the key'),
    summary: 'Get the source of an incoming disk',
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
    permission: hostsOnly('the target of a migration reports its progress'),
    summary: 'Report how much of a disk has arrived',
    params: byDisk,
    body: z.strictObject({ percent: z.number().min(0).max(100) }),
    responses: { 204: null },
    handle: async ({ caller, params, body }) => {
      const { operation_id, name } = await migrating(caller, params, 'target_host_id')
      if (operation_id) await noteStep(operation_id, `copying disk ${name}: ${Math.floor(body.percent)} %`)
    },
  }),
]
