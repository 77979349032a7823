import { machineWorkflows } from './machines.ts'

export const {
  create: createVm,
  start: startVm,
  repair: repairVm,
  stop: stopVm,
  update: updateVm,
  reboot: rebootVm,
  suspend: suspendVm,
  resume: resumeVm,
  reschedule: rescheduleVm,
  delete: deleteVm,
  attachDisk: attachDiskVm,
  detachDisk: detachDiskVm,
  attachNic: attachNicVm,
  detachNic: detachNicVm,
} = machineWorkflows('vm', 'VM')
