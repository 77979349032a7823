import { vmKind } from '../../../models/compute/vms.ts'
import { eventually } from '../../support/eventually.ts'
import { allHosts, open } from '../../support/hosts.ts'
import { outputOf } from '../../support/microvms.ts'
import { type Member } from '../../support/vpcs.ts'
import { longMs, newNic, repaired, tenant, type Stories, withNic } from '../world.ts'

const { disks, vms, owner } = tenant

export const vmStories: Stories = {
  'createVm.running': async () => (await vms.create()).operation,
  'updateVm.running': async () => (await vms.update(await runningVm(), { memory_mib: 600 })).operation,
  'rebootVm.running': async () => (await vms.reboot(await runningVm(), { grace_sec: 0 })).operation,
  'suspendVm.suspended': async () => (await vms.suspend(await runningVm())).operation,
  'resumeVm.running': async () => {
    const id = await runningVm()
    await (await vms.suspend(id)).operation.success()
    return (await vms.resume(id)).operation
  },
  'attachDiskVm.running': async () => {
    const id = await runningVm()
    return (await vms.attach(id, (await disks.make()).id)).operation
  },
  'detachDiskVm.running': async () => {
    const id = await runningVm()
    const { id: disk } = await disks.make()
    await (await vms.attach(id, disk, '/other')).operation.success()
    return (await vms.detach(id, disk)).operation
  },
  'attachNicVm.running': async () =>
    (await owner.begin('POST', `/api/v1/vms/${await runningVm()}/nics`, await newNic())).operation,
  'detachNicVm.running': async () => {
    const { id, nics } = (await vms.make(await withNic(), longMs)) as Member
    // A VM releases a NIC only when its system is up.
    await eventually(() => outputOf(tenant, id, 'echo up', 'vms'), { withinMs: longMs })
    return (await owner.begin('DELETE', `/api/v1/vms/${id}/nics/${nics[0]?.id}`)).operation
  },
  'repairVm.running': async () => repaired(vmKind.resource, await runningVm()),
  'stopVm.stopped': async () => (await vms.stop(await runningVm())).operation,
  'startVm.running': async () => {
    const id = await runningVm()
    await (await vms.stop(id)).operation.success()
    return (await vms.start(id)).operation
  },
  'rescheduleVm.running': async () => {
    const id = await runningVm()
    await open((await allHosts()).slice(1))
    return (await vms.reschedule(id)).operation
  },
  'deleteVm.deleted': async () => {
    const id = await runningVm()
    theVm = null
    return (await vms.delete(id)).operation
  },
}

let theVm: string | null = null
/** One VM for all stories: a dozen VMs that boot in parallel take minutes. */
async function runningVm(): Promise<string> {
  theVm ??= (await vms.make({}, longMs)).id
  const { status } = await vms.get(theVm)
  if (status === 'suspended') await (await vms.resume(theVm)).operation.success()
  if (status === 'stopped') await (await vms.start(theVm)).operation.success(longMs)
  return theVm
}
