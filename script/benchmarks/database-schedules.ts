import { setTimeout as delay } from 'node:timers/promises'
import { type Bench, onWorker } from './database-workers.ts'
import type { Row } from './measure.ts'
import type { Stack } from './stack.ts'

// Many small databases whose schedules come in the same minute, on one worker.

/** As many scratch engines may run beside them: the worker has room for both. */
const count = 50
const atOnce = 10
const redis = { type: 'redis', memory_mib: 16, cpu_cores: 0.5 }
const lookEveryMs = 200
/** More than the requests take that make the schedules. */
const aheadMs = 15_000
const minuteMs = 60_000

interface Execution {
  status: string
  verified: { by: string } | null
  backup_id: string | null
  scheduled_at: string
  ended_at: string | null
}

/** The time until the last has succeeded, how they were verified, and how many engines took copies at once. */
export const databaseSchedules = (stack: Stack): Promise<Row[]> => onWorker(stack, scheduleRows)

async function scheduleRows({ stack, path, docker, shell }: Bench): Promise<Row[]> {
  const databases: string[] = []
  const names = Array.from({ length: count }, (_, index) => `small-${index + 1}`)
  const create = async (): Promise<void> => {
    for (let name = names.pop(); name; name = names.pop()) {
      const { id, state } = await stack.finish('POST', `${path}/databases`, { ...redis, name })
      if (state !== 'succeeded') throw new Error(`no database: its creation ${state}`)
      databases.push(id)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, create))
  await shell(`for one in $(docker ps -qf label=keelson.database); do
    docker exec $one redis-cli eval "for i = 1, 1000 do redis.call('set', 'key' .. i, i) end" 0 >/dev/null; done`)

  const { due, schedules } = await scheduleAll(stack, path, databases)
  let most = 0
  let all: Execution[] = []
  do {
    await delay(lookEveryMs)
    const engines = await docker.listContainers({ filters: { label: ['keelson.scratch'] } })
    most = Math.max(most, engines.length)
    const { body } = await stack.request<{ items: Execution[] }>('GET', `${path}/backup-executions?limit=100`)
    all = body.items
  } while (all.filter(({ ended_at }) => ended_at !== null).length < count)

  const bad = all.find(({ status }) => status !== 'succeeded')
  if (bad) throw new Error(`a backup did not succeed: ${JSON.stringify(bad)}`)
  const wrong = schedules.filter((schedule) => {
    const times = all
      .filter(({ backup_id }) => backup_id === schedule)
      .map((one) => Date.parse(one.scheduled_at))
    return times.length !== 1 || times[0] !== due.getTime()
  })
  if (wrong.length) throw new Error(`${wrong.length} schedules do not have exactly one backup`)
  const last = Math.max(...all.map(({ ended_at }) => Date.parse(ended_at ?? '')))
  const by = (how: string): number[] => [all.filter(({ verified }) => verified?.by === how).length]
  return [
    {
      what: `${count} backups of the same minute on one worker, until the last is verified`,
      unit: 's',
      figures: [(last - due.getTime()) / 1000],
    },
    { what: 'of these, verified by a restore', unit: '', figures: by('restore') },
    { what: 'of these, verified by reading', unit: '', figures: by('reading') },
    { what: 'scratch engines at once, at most', unit: '', figures: [most] },
  ]
}

/** Gives each database a schedule that comes once, in a minute that is not far. */
async function scheduleAll(stack: Stack, path: string, databases: string[]) {
  const due = new Date(Math.ceil((Date.now() + aheadMs) / minuteMs) * minuteMs)
  const [minute, hour] = [due.getUTCMinutes(), due.getUTCHours()]
  const frequency = `${minute} ${hour} ${due.getUTCDate()} ${due.getUTCMonth() + 1} *`
  const schedules = await Promise.all(
    databases.map(async (id) => {
      const fields = { name: 'once', frequency, keep_count: 1 }
      const made = await stack.request<{ id: string }>('POST', `${path}/databases/${id}/backups`, fields)
      if (made.status !== 201) throw new Error(`no schedule: ${made.status}`)
      return made.body.id
    }),
  )
  if (Date.now() > due.getTime()) throw new Error('the minute came before all schedules were made')
  return { due, schedules }
}
