import { newId } from '../../../lib/ids.ts'
import type { Json } from './ask.ts'
import type { Caller } from './caller.ts'
import { machinesOf } from './machines.ts'

/** A small VM, which boots for half a minute. */
export const smallVm = (over: Json = {}): Json => ({
  name: `test-${newId().slice(-12)}`,
  image: 'debian-12',
  cpu_cores: 1,
  memory_mib: 512,
  root_disk_gib: 3,
  ...over,
})

export const vmsOf = (caller: Caller) => machinesOf(caller, 'vms', smallVm)
