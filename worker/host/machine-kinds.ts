/** What a host knows when it says which machines of deploy servers it runs. */
export interface MachineOffer {
  /** KEELSON_HOST_CONTAINER_MACHINES */
  containersMay: boolean
  /** KEELSON_HOST_VM_MACHINES */
  vmsMay: 'kvm' | 'always' | 'never'
  /** Whether its engine of machines runs VMs. */
  vmsRun: boolean
  /** Known some time after the start, by booting a guest. */
  accelerator: 'kvm' | 'tcg' | null
}

/** Which machines deploy servers may have on a host. */
export function machineKindsOf(offer: MachineOffer): ('machine' | 'vm_machine')[] {
  const { containersMay, vmsMay, vmsRun, accelerator } = offer
  const vmsWanted = vmsMay === 'always' || (vmsMay === 'kvm' && accelerator === 'kvm')
  return [
    ...(containersMay ? ['machine' as const] : []),
    ...(vmsRun && vmsWanted ? ['vm_machine' as const] : []),
  ]
}
