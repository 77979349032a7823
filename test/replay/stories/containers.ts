import { containerResource } from '../../../models/compute/containers.ts'
import { shell } from '../../support/client.ts'
import { allHosts, open } from '../../support/hosts.ts'
import { platform } from '../../support/platform.ts'
import { type Member } from '../../support/vpcs.ts'
import { newNic, repaired, tenant, type Stories, whileHostIsAway, withDisk, withNic } from '../world.ts'

const { containers, disks, owner } = tenant

export const containerStories: Stories = {
  'createContainer.running': async () => (await containers.create()).operation,
  'createContainer.stopped': async () => (await containers.create({ start: false })).operation,
  'createContainer.failed': async () => (await containers.create({ command: ['false'] })).operation,
  'createContainer.cancelled': async () => {
    const { operation } = await whileHostIsAway(() => containers.create())
    await operation.cancel()
    await platform.start('host')
    return operation
  },
  'startContainer.running': async () => {
    const { id } = await containers.make({ start: false })
    return (await containers.start(id)).operation
  },
  'startContainer.failed': async () => {
    const { id } = await containers.make(shell('test ! -e /ran || exit 9; touch /ran; sleep 3600'))
    await (await containers.stop(id)).operation.success()
    return (await containers.start(id)).operation
  },
  'stopContainer.stopped': async () => (await containers.stop((await containers.make()).id)).operation,
  'updateContainer.running': async () => {
    const { id } = await containers.make()
    return (await containers.update(id, { memory_mib: 32, command: ['sleep', '7200'] })).operation
  },
  'updateContainer.stopped': async () => {
    const { id } = await containers.make({ start: false })
    return (await containers.update(id, { memory_mib: 32 })).operation
  },
  'repairContainer.running': async () => repaired(containerResource, (await containers.make()).id),
  'rescheduleContainer.running': async () => {
    const { id } = await containers.make()
    await open((await allHosts()).slice(1))
    return (await containers.reschedule(id)).operation
  },
  'rescheduleContainer.failed': async () => {
    const { id } = await containers.make()
    return (await containers.reschedule(id)).operation
  },
  'rescheduleContainer.disks': async () => {
    const { id } = await withDisk()
    await open((await allHosts()).slice(1))
    return (await containers.reschedule(id)).operation
  },
  'createContainer.disks': async () => {
    const { id: disk_id } = await disks.make()
    return (await containers.create({ disks: [{ disk_id, mount_path: '/data' }] })).operation
  },
  'attachDiskContainer.running': async () => {
    const { id } = await containers.make()
    return (await containers.attach(id, (await disks.make()).id)).operation
  },
  'attachDiskContainer.failed': async () => {
    const { id } = await containers.make()
    return (await containers.attach(id, (await disks.make()).id, '/etc/passwd')).operation
  },
  'detachDiskContainer.running': async () => {
    const { id, disk } = await withDisk()
    return (await containers.detach(id, disk)).operation
  },
  'deleteContainer.deleted': async () => (await containers.delete((await containers.make()).id)).operation,
  'deleteContainer.superseding': async () => {
    const { id } = await whileHostIsAway(() => containers.create())
    const { operation } = await containers.delete(id)
    await platform.start('host')
    return operation
  },
  'createContainer.nic': async () => (await containers.create(await withNic())).operation,
  'rescheduleContainer.nic': async () => {
    const { id } = await containers.make(await withNic())
    await open((await allHosts()).slice(1))
    return (await containers.reschedule(id)).operation
  },
  'deleteContainer.nic': async () =>
    (await containers.delete((await containers.make(await withNic())).id)).operation,
  'attachNicContainer.running': async () => {
    const { id } = await containers.make()
    return (await owner.begin('POST', `/api/v1/containers/${id}/nics`, await newNic())).operation
  },
  'attachNicContainer.cancelled': async () => {
    const { id } = await containers.make()
    const nic = await newNic()
    const { operation } = await whileHostIsAway(() =>
      owner.begin('POST', `/api/v1/containers/${id}/nics`, nic),
    )
    await operation.cancel()
    await platform.start('host')
    return operation
  },
  'detachNicContainer.running': async () => {
    const { id, nics } = (await containers.make(await withNic())) as Member
    return (await owner.begin('DELETE', `/api/v1/containers/${id}/nics/${nics[0]?.id}`)).operation
  },
}
