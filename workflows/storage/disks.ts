import { proxyLocalActivities } from '@temporalio/workflow'
import type { DiskActivities } from '../../activities/storage/disks.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'
import { moveDisk } from './moves.ts'

const platform = proxyLocalActivities<DiskActivities>({
  startToCloseTimeout: '10 s', // one or two queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

// models/storage/disks.ts turns this into `available` or `attached`, as the record says at the end.
const atRest = { status: 'available' }

export const createDisk = durable<{ from: { disk_id: string; snapshot: string } | null }>(
  async ({ id, input: { from }, undo, progress }) => {
    progress(from ? 'copying the snapshot' : 'making and formatting the disk')
    undo(() => platform.releaseDisk(id))
    const { host_id, size_gib } = await platform.diskPlace(id)
    undo(() => on(host_id).removeDiskOnHost(id))
    await on(host_id).createDiskOnHost({ id, size_gib, ...(from ? { from } : {}) })
    return atRest
  },
)

export const updateDisk = durable<{ changes: { size_gib?: number; tags?: Record<string, string> } }>(
  async ({ id, input: { changes }, undo, progress }) => {
    const { host_id, size_gib: before } = await platform.diskPlace(id)
    const { size_gib = before } = changes
    progress('growing the disk and its file system')
    // The API reserved the new size on acceptance. Undo reserves the recorded size, which is still the old one.
    undo(() => platform.holdRecordedRoom(id))
    await on(host_id).resizeDiskOnHost(id, size_gib)
    return { ...changes, ...atRest }
  },
)

export const snapshotDisk = durable<{ name: string }>(
  async ({ id, operation_id, input: { name }, undo, progress, settle }) => {
    progress('taking the snapshot')
    undo(() => platform.forgetSnapshot(id, name, operation_id))
    const { host_id } = await platform.diskPlace(id)
    undo(() => on(host_id).removeSnapshotOnHost(id, name))
    const taken = await on(host_id).takeSnapshotOnHost(id, name)
    await settle(() => platform.snapshotTaken(id, name, taken))
    return atRest
  },
)

export const removeSnapshotDisk = durable<{ name: string }>(
  async ({ id, input: { name }, progress, settle }) => {
    progress('removing the snapshot')
    const { host_id } = await platform.diskPlace(id)
    await on(host_id).removeSnapshotOnHost(id, name)
    await settle(() => platform.forgetSnapshot(id, name, null))
    return atRest
  },
)

export const migrateDisk = durable<{ bandwidth_mib_per_sec: number | null }>(async (work) => {
  const { id, operation_id, input, undo, settle } = work
  undo(() => platform.diskStays(operation_id))
  const { from_host_id, host_id, name } = await platform.diskMove(id)
  const disk = { id, name, from: from_host_id, to: host_id }
  await moveDisk(work, disk, { bandwidth_mib_per_sec: input.bandwidth_mib_per_sec })
  // The former host removes its copy at its next report.
  await settle(() => platform.diskArrived(operation_id))
  return atRest
})

export const deleteDisk = durable(
  async ({ id, progress }) => {
    progress('removing the disk and its snapshots')
    const { host_ids } = await platform.hostsOfDisk(id)
    for (const host_id of host_ids) await on(host_id).removeDiskOnHost(id)
    await platform.releaseDisk(id)
    return 'deleted'
  },
  { final: true },
)
