import { accessOf } from '../../lib/access-log.ts'
import { type Joiner, makeEntryReader } from '../compute/observation/log-lines.ts'
import type { TimedLine } from '../compute/observation/timed-lines.ts'

// Lines of access logs, as clients get them.

const damaged = 'an entry is damaged'

/** An AccessLine of lib/load-balancer-protocol.ts. `line`: as it is in the log of the replica on that host. */
export function accessLine(host_id: string, time: string, line: string): TimedLine {
  const entry = accessOf(line)
  return entry
    ? { time, text: JSON.stringify({ time, host_id, ...entry }) }
    : remarkOn(host_id, damaged, time)
}

/** In the place of lines that are missing. */
export const remarkOn = (host_id: string, missing: string, time = ''): TimedLine => ({
  time,
  text: JSON.stringify({ host_id, missing }),
})

/** Makes lines of the entries of one replica. A gap is an object with the field `missing`. */
export function makeAccessJoiner(host_id: string): Joiner<TimedLine[]> {
  const reader = makeEntryReader()
  let last = ''
  const remark = (missing: string): TimedLine => remarkOn(host_id, missing, last)
  return {
    push: (bytes) =>
      reader.push(bytes).map((entry) => {
        if (!entry) return remark(damaged)
        last = entry.time
        return accessLine(host_id, entry.time, entry.log)
      }),
    end: () => (reader.end() ? [remark(damaged)] : []),
    remark: (words) => [remark(words)],
  }
}
