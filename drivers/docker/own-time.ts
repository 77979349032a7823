import { readFileSync } from 'node:fs'
import { processStat } from '../system/process-stat.ts'

/** Further processes of a command are not looked at. */
const mostProcesses = 32

/**
 * Measures how long a command has run or slept since this call, in ms. Time in which one of its processes, the descendants
 * of `init`, waits for a processor or a disk does not count, so a busy host does not change the result. Between two looks, the
 * whole time counts unless a process waits at the second; then only the processor time counts. If /proc does not show
 * the engine's processes, all time counts.
 */
export function ownTime(init: number): () => number {
  let own = 0
  let [lookedAt, { cpuMs: used }] = [performance.now(), lookAt(init)]
  return () => {
    const now = performance.now()
    const { waits, cpuMs } = lookAt(init)
    const between = now - lookedAt
    own += waits ? Math.min(between, Math.max(0, cpuMs - used)) : between // what has ended uses nothing any more
    lookedAt = now
    used = cpuMs
    return own
  }
}

/** Whether a process waits (or runs: /proc tells no difference), and the processor time of those that are there. */
function lookAt(init: number): { waits: boolean; cpuMs: number } {
  let waits = false
  let cpuNs = 0
  const pids = [init]
  for (const pid of pids) {
    const stat = processStat(pid)
    const times = textOf(`/proc/${pid}/schedstat`) // finer than the hundredths of a second in stat
    if (stat === null || times === null) continue
    waits ||= stat.state === 'R' || stat.state === 'D'
    cpuNs += Number.parseInt(times)
    const children = textOf(`/proc/${pid}/task/${pid}/children`) ?? ''
    const all = children.split(' ').filter(Boolean).map(Number)
    pids.push(...all.slice(0, mostProcesses - pids.length))
  }
  return { waits, cpuMs: cpuNs / 1e6 }
}

/** Synchronous, as processStat is. */
function textOf(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
