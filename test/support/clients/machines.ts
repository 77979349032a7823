import type { Json } from './ask.ts'
import type { Caller } from './caller.ts'
import { instancesOf } from './instances.ts'

/** The verbs that microVMs and VMs share. */
export function machinesOf(caller: Caller, plural: string, fresh: (over: Json) => Json) {
  const path = `/api/v1/${plural}`
  return {
    ...instancesOf(caller, plural, fresh),
    reboot: (id: string, body: Json = { grace_sec: 5 }) => caller.begin('POST', `${path}/${id}/reboot`, body),
    suspend: (id: string) => caller.begin('POST', `${path}/${id}/suspend`),
    resume: (id: string) => caller.begin('POST', `${path}/${id}/resume`),
  }
}
