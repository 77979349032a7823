import { allHosts, open } from '../../support/hosts.ts'
import { tenant, type Stories, withDisk } from '../world.ts'

const { disks } = tenant

export const diskStories: Stories = {
  'createDisk.available': async () => (await disks.create()).operation,
  'createDisk.restored': async () => {
    const { id } = await disks.make()
    await (await disks.snapshot(id, 'kept')).operation.success()
    return (await disks.restore(id, 'kept')).operation
  },
  'updateDisk.available': async () =>
    (await disks.update((await disks.make()).id, { size_gib: 2 })).operation,
  'snapshotDisk.attached': async () => (await disks.snapshot((await withDisk()).disk, 'kept')).operation,
  'removeSnapshotDisk.available': async () => {
    const { id } = await disks.make()
    await (await disks.snapshot(id, 'kept')).operation.success()
    return (await disks.removeSnapshot(id, 'kept')).operation
  },
  'migrateDisk.available': async () => {
    const { id } = await disks.make()
    const further = (await allHosts()).slice(1)
    await open(further)
    return (await disks.migrate(id, further[0]?.id ?? '')).operation
  },
  'deleteDisk.deleted': async () => (await disks.delete((await disks.make()).id)).operation,
}
