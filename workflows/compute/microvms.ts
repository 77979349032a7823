import { machineWorkflows } from './machines.ts'

export const {
  create: createMicrovm,
  start: startMicrovm,
  repair: repairMicrovm,
  stop: stopMicrovm,
  update: updateMicrovm,
  reboot: rebootMicrovm,
  suspend: suspendMicrovm,
  resume: resumeMicrovm,
  fork: forkMicrovm,
  reschedule: rescheduleMicrovm,
  delete: deleteMicrovm,
  attachDisk: attachDiskMicrovm,
  detachDisk: detachDiskMicrovm,
  attachNic: attachNicMicrovm,
  detachNic: detachNicMicrovm,
  attachDatabase: attachDatabaseMicrovm,
  detachDatabase: detachDatabaseMicrovm,
} = machineWorkflows('microvm', 'microVM')
