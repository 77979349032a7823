import { newId } from '../../../lib/ids.ts'
import type { Json } from './ask.ts'
import type { Caller } from './caller.ts'
import { instancesOf } from './instances.ts'

/** The fields of a container that tests read from the API. */
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

/** A small container with a unique name that sleeps until it is stopped. */
export const sleeper = (over: Json = {}): Json => ({
  name: `test-${newId().slice(-12)}`,
  image: 'busybox',
  command: ['sleep', '3600'],
  cpu_cores: 0.1,
  memory_mib: 16,
  ...over,
})

/** The same with a shell command. */
export const shell = (script: string, over: Json = {}): Json =>
  sleeper({ command: ['sh', '-c', script], ...over })

export const containersOf = (caller: Caller) => instancesOf(caller, 'containers', sleeper)
