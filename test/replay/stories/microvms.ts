import { microvmKind } from '../../../models/compute/microvms.ts'
import { allHosts, open, whileFull } from '../../support/hosts.ts'
import { type Member } from '../../support/vpcs.ts'
import { longMs, newNic, repaired, tenant, type Stories, withNic } from '../world.ts'

const { disks, microvms, owner } = tenant

export const microvmStories: Stories = {
  'createMicrovm.running': async () => (await microvms.create()).operation,
  'createMicrovm.failed': async () => (await microvms.create({ command: ['no-such-command'] })).operation,
  'startMicrovm.running': async () => {
    const { id } = await microvms.make({ start: false })
    return (await microvms.start(id)).operation
  },
  'stopMicrovm.stopped': async () => (await microvms.stop((await microvms.make()).id)).operation,
  'updateMicrovm.running': async () =>
    (await microvms.update((await microvms.make()).id, { memory_mib: 80 })).operation,
  'rebootMicrovm.running': async () => (await microvms.reboot((await microvms.make()).id)).operation,
  'suspendMicrovm.suspended': async () => (await microvms.suspend((await microvms.make()).id)).operation,
  'resumeMicrovm.running': async () => (await microvms.resume(await suspended())).operation,
  'resumeMicrovm.elsewhere': async () => {
    const id = await suspended()
    const [first, second] = await allHosts()
    if (!first || !second) throw new Error('it takes two hosts')
    await open([second])
    return whileFull(first, async () => {
      const { operation } = await microvms.resume(id)
      await operation.success(longMs)
      return operation
    })
  },
  'forkMicrovm.running': async () => (await microvms.fork(await suspended())).operation,
  'repairMicrovm.running': async () => repaired(microvmKind.resource, (await microvms.make()).id),
  'rescheduleMicrovm.running': async () => {
    const { id } = await microvms.make()
    await open((await allHosts()).slice(1))
    return (await microvms.reschedule(id)).operation
  },
  'rescheduleMicrovm.suspended': async () => {
    const id = await suspended()
    await open((await allHosts()).slice(1))
    return (await microvms.reschedule(id)).operation
  },
  'deleteMicrovm.deleted': async () => (await microvms.delete((await microvms.make()).id)).operation,
  'attachDiskMicrovm.running': async () => {
    const { id } = await microvms.make()
    return (await microvms.attach(id, (await disks.make()).id)).operation
  },
  'detachDiskMicrovm.running': async () => {
    const { id: disk_id } = await disks.make()
    const { id } = await microvms.make({ disks: [{ disk_id, mount_path: '/data' }] })
    return (await microvms.detach(id, disk_id)).operation
  },
  'attachNicMicrovm.running': async () => {
    const { id } = await microvms.make()
    return (await owner.begin('POST', `/api/v1/microvms/${id}/nics`, await newNic())).operation
  },
  'detachNicMicrovm.running': async () => {
    const { id, nics } = (await microvms.make(await withNic())) as Member
    return (await owner.begin('DELETE', `/api/v1/microvms/${id}/nics/${nics[0]?.id}`)).operation
  },
}

async function suspended(): Promise<string> {
  const { id } = await microvms.make()
  await (await microvms.suspend(id)).operation.success()
  return id
}
