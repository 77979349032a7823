import { text } from 'node:stream/consumers'
import { addAbortSignal } from 'node:stream'
import { parseInterfaces, parseVersion1, parseVersion2, type Texts } from '../system/usage.ts'
import type { EndedTask, MachineTasks, PipeMachine, TaskSamples } from '../swarms.ts'
import { serviceLabel } from './services.ts'

// Read in the machine by one script, and not from its engine: an answer about the usage of one container costs the engine
// 6 to 27 ms of CPU.

const about = `{{.Id}} {{index .Config.Labels "${serviceLabel}"}} {{.State.Status}} {{.State.Pid}} {{.State.StartedAt}}`
const end = '{{.State.ExitCode}} {{.State.FinishedAt}}'

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
  echo "@@ network"; cat "/proc/$pid/net/dev" 2>/dev/null
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=$(sed -n 's/^0:://p' "/proc/$pid/cgroup")
    echo "@@ version2"; ${catAll(version2)}
  else echo "@@ version1"; ${catAll(version1)}; fi
done`

/** Samples the services of machines. Gives up a machine that does not answer: the next sample has what it has used. */
export const makeTaskSamples =
  (pipe: PipeMachine, withinSec = 8): TaskSamples =>
  async (machineId) => {
    const stream = await pipe(machineId, ['timeout', String(withinSec), 'sh', '-c', script])
    addAbortSignal(AbortSignal.timeout(withinSec * 1000), stream)
    return parseTasks(await text(stream))
  }

/** Reads what the script writes. A container that has ended meanwhile is left out. */
export function parseTasks(output: string): MachineTasks {
  const running: MachineTasks['running'] = []
  const ended: EndedTask[] = []
  for (const part of output.split(/^@@ task /m).slice(1)) {
    const [head = '', ...rest] = part.split('\n')
    const [engine_id = '', service_id = '', status, startedAt = '', code, endedAt = ''] = head.split(' ')
    if (status === 'exited' || status === 'dead') {
      const ended_at = timeOf(endedAt)
      if (ended_at === null) continue
      ended.push({ service_id, engine_id, exit_code: Number(code), ended_at })
      continue
    }
    const started_at = timeOf(startedAt)
    const usage = usageIn(rest.join('\n'))
    if (started_at !== null && usage) running.push({ service_id, started_at, ...usage })
  }
  return { running, ended }
}

function usageIn(output: string) {
  const files = new Map(
    output.split(/^@@ /m).map((one) => {
      const at = one.indexOf('\n')
      return [one.slice(0, at), one.slice(at + 1)] as const
    }),
  )
  const of = (name: string): string => files.get(name) ?? ''
  const texts = { cpu: of('cpu'), used: of('used'), memory: of('memory'), disk: of('disk') }
  if (!texts.cpu || !texts.used) return null
  const parse = files.has('version2') ? parseVersion2 : parseVersion1
  return { ...parse(texts), ...parseInterfaces(of('network')) }
}

const timeOf = (time: string): string | null => {
  const ms = Date.parse(time)
  return Number.isNaN(ms) || time.startsWith('0001-') ? null : new Date(ms).toISOString()
}
