import { newId } from '../../../lib/ids.ts'
import type { Json } from './ask.ts'
import type { Caller } from './caller.ts'
import { sleeper } from './containers.ts'
import { machinesOf } from './machines.ts'

/** The same as `sleeper`, as a microVM. */
export const sleepingGuest = (over: Json = {}): Json => ({
  ...sleeper({ cpu_cores: 1, memory_mib: 64, root_disk_gib: 1 }),
  ...over,
})

export const microvmsOf = (caller: Caller) => ({
  ...machinesOf(caller, 'microvms', sleepingGuest),
  fork: (id: string, over: Json = {}) =>
    caller.begin('POST', `/api/v1/microvms/${id}/fork`, { name: `test-${newId().slice(-12)}`, ...over }),
})
