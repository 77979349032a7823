import { newId } from '../../../lib/ids.ts'
import type { Json } from './ask.ts'
import type { Caller } from './caller.ts'
import { instancesOf } from './instances.ts'

/** A container as the API shows it: what tests read of it. */
export interface ContainerBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  operation_id: string | null
  host_id: string | null
  started_at: string | null
  ports: { container_port: number; host_address: string; host_port: number }[]
  pending_changes: string[]
}

/** A small container that sleeps until it is stopped, named like no other. */
export const sleeper = (over: Json = {}): Json => ({
  name: `test-${newId().slice(-12)}`,
  image: 'busybox',
  command: ['sleep', '3600'],
  cpu_cores: 0.1,
  memory_mib: 16,
  ...over,
})

/** A shell command instead. */
export const shell = (script: string, over: Json = {}): Json =>
  sleeper({ command: ['sh', '-c', script], ...over })

export const containersOf = (caller: Caller) => instancesOf(caller, 'containers', sleeper)
