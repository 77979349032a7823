import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

// Temporal's SDK keeps a second copy of the workflow code for debuggers for ten seconds.
const startedAfterMs = 15_000

/**
 * Collects, once, what the start of a process has left behind: V8 keeps it until it needs the room. The process stands still
 * meanwhile, for the time of several collections.
 */
export function freeStartMemory(): void {
  setTimeout(() => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as (options: object) => void
    collect({ type: 'major', execution: 'sync', flavor: 'last-resort' })
  }, startedAfterMs).unref()
}
