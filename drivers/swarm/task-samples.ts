import { uptime } from 'node:os'
import { text } from 'node:stream/consumers'
import { addAbortSignal } from 'node:stream'
import { parseInterfaces, parseVersion1, parseVersion2, type Texts } from '../system/usage.ts'
import type { EndedTask, MachineTasks, PipeMachine, TaskHealth, TaskSamples } from '../swarms.ts'
import { serviceLabel } from './services.ts'

// Read in the machine by one script, and not from its engine: an answer about the usage of one container costs the engine
// 6 to 27 ms of CPU.

const about = `{{.Id}} {{index .Config.Labels "${serviceLabel}"}} {{.State.Status}} {{.State.Pid}} {{.State.StartedAt}}`
/** `index`, because a container without a health check has no such field. */
const healthField = '{{with index .State "Health"}}{{.Status}}{{else}}none{{end}}'
const end = `{{.State.ExitCode}} {{.State.FinishedAt}} ${healthField}`

/** Where the engine of a container machine has its containers' control groups: images/machine/machine-init. */
const version1 = {
  cpu: 'cpuacct/apps/$id/cpuacct.usage',
  used: 'memory/apps/$id/memory.usage_in_bytes',
  memory: 'memory/apps/$id/memory.stat',
  disk: 'blkio/apps/$id/blkio.throttle.io_service_bytes_recursive',
}
/** A VM's engine has them elsewhere, so the kernel is asked. */
const version2 = {
  cpu: '$group/cpu.stat',
  used: '$group/memory.current',
  memory: '$group/memory.stat',
  disk: '$group/io.stat',
}
const catAll = (files: Record<keyof Texts, string>): string =>
  Object.entries(files)
    .map(([name, file]) => `echo "@@ ${name}"; cat /sys/fs/cgroup/${file} 2>/dev/null`)
    .join('; ')

const script = `
ids=$(docker ps -aq --no-trunc --filter label=${serviceLabel})
[ -n "$ids" ] || exit 0
docker inspect --format '${about} ${end}' $ids 2>/dev/null | while read -r id service status pid rest; do
  echo "@@ task $id $service $status $rest"
  [ "$status" = running ] || continue
  read -r at _ </proc/uptime; echo "@@ at"; echo "$at"
  echo "@@ network"; cat "/proc/$pid/net/dev" 2>/dev/null
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=$(sed -n 's/^0:://p' "/proc/$pid/cgroup")
    echo "@@ version2"; ${catAll(version2)}
  else echo "@@ version1"; ${catAll(version1)}; fi
done
read -r now _ </proc/uptime; echo "@@ now $now"`

/** Longer answers are not waited for. */
const longestAnswerSec = 8

/** Samples the services of machines. Gives up a machine that does not answer: the next sample has what it has used. */
export const makeTaskSamples =
  (pipe: PipeMachine, withinSec = longestAnswerSec): TaskSamples =>
  async (machineId) => {
    const stream = await pipe(machineId, ['timeout', String(withinSec), 'sh', '-c', script])
    addAbortSignal(AbortSignal.timeout(withinSec * 1000), stream)
    const output = await text(stream)
    return parseTasks(output, { ms: Date.now(), uptimeSec: uptime() })
  }

/** When an answer came, by its host. */
interface Arrival {
  ms: number
  uptimeSec: number
}

/**
 * The time at which a machine read a value, from its uptime then and at the end of its answer. On a busy machine an answer
 * comes seconds later, and rates are differences of these times. A container machine has its host's uptime, a VM its own.
 */
function readAt(atSec: number, nowSec: number, arrival: Arrival): string {
  const isOfHost = Math.abs(arrival.uptimeSec - nowSec) < longestAnswerSec
  const ageSec = (isOfHost ? arrival.uptimeSec : nowSec) - atSec
  return new Date(arrival.ms - ageSec * 1000).toISOString()
}

/** Reads what the script writes. A container that has ended meanwhile is left out. */
export function parseTasks(output: string, arrival: Arrival): MachineTasks {
  const nowSec = Number(/^@@ now ([\d.]+)$/m.exec(output)?.[1])
  const running: MachineTasks['running'] = []
  const healths: MachineTasks['healths'] = []
  const ended: EndedTask[] = []
  for (const part of output.split(/^@@ task /m).slice(1)) {
    const [head = '', ...rest] = part.split('\n')
    const [engine_id = '', service_id = '', status, startedAt = '', code, endedAt = '', health] = head
      .trim()
      .split(' ')
    if (status === 'exited' || status === 'dead') {
      const ended_at = timeOf(endedAt)
      if (ended_at === null) continue
      ended.push({ service_id, engine_id, exit_code: Number(code), ended_at })
      continue
    }
    const started_at = timeOf(startedAt)
    const files = filesIn(rest.join('\n'))
    const usage = usageIn(files)
    if (started_at === null || !usage) continue
    healths.push({ service_id, health: healthOf(health) })
    running.push({
      service_id,
      time: readAt(Number(files.get('at')), nowSec, arrival),
      started_at,
      ...usage,
    })
  }
  return { running, healths, ended }
}

const filesIn = (output: string): Map<string, string> =>
  new Map(
    output.split(/^@@ /m).map((one) => {
      const at = one.indexOf('\n')
      return [one.slice(0, at), one.slice(at + 1)] as const
    }),
  )

function usageIn(files: Map<string, string>) {
  const of = (name: string): string => files.get(name) ?? ''
  const texts = { cpu: of('cpu'), used: of('used'), memory: of('memory'), disk: of('disk') }
  if (!texts.cpu || !texts.used) return null
  const parse = files.has('version2') ? parseVersion2 : parseVersion1
  return { ...parse(texts), ...parseInterfaces(of('network')) }
}

const healths: readonly string[] = ['starting', 'healthy', 'unhealthy']
const healthOf = (health = ''): TaskHealth => (healths.includes(health) ? (health as TaskHealth) : 'none')

const timeOf = (time: string): string | null => {
  const ms = Date.parse(time)
  return Number.isNaN(ms) || time.startsWith('0001-') ? null : new Date(ms).toISOString()
}
