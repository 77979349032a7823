import { setTimeout as delay } from 'node:timers/promises'
import mongoose from 'mongoose'
import { type Bench, onWorker } from './database-workers.ts'
import type { Row } from './measure.ts'
import type { Stack } from './stack.ts'

// Many small databases whose backups are due in the same minute, on one worker.

/** As many scratch engines may run beside them: the worker has room for both. */
const count = 25
const atOnce = 10
const redis = { type: 'redis', memory_mib: 16, cpu_cores: 0.5 }
const lookEveryMs = 200

interface Execution {
  id: string
  status: string
  verified: { by: string } | null
  backup_id: string | null
}

/** The time until the last has succeeded, how they were verified, and how many engines took copies at once. */
export const databaseSchedules = (stack: Stack): Promise<Row[]> => onWorker(stack, scheduleRows)

async function scheduleRows({ stack, path, docker, shell }: Bench): Promise<Row[]> {
  const names = Array.from({ length: count }, (_, index) => `small-${index + 1}`)
  const create = async (): Promise<void> => {
    for (let name = names.pop(); name; name = names.pop()) {
      const { id } = await stack.finish('POST', `${path}/databases`, { ...redis, name })
      const yearly = { name: 'yearly', frequency: '0 0 1 1 *', keep_count: 1 }
      const { status } = await stack.request('POST', `${path}/databases/${id}/backups`, yearly)
      if (status !== 201) throw new Error(`no schedule: ${status}`)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, create))
  await shell(`for one in $(docker ps -qf label=keelson.database); do
    docker exec $one redis-cli eval "for i = 1, 1000 do redis.call('set', 'key' .. i, i) end" 0 >/dev/null; done`)

  const client = await new mongoose.mongo.MongoClient(stack.mongodbUrl).connect()
  const began = performance.now()
  await client
    .db()
    .collection('backups')
    .updateMany({}, { $set: { next_at: new Date() } })
  await client.close()
  let most = 0
  let ended: Execution[] = []
  while (ended.length < count) {
    await delay(lookEveryMs)
    const engines = await docker.listContainers({ filters: { label: ['keelson.scratch'] } })
    most = Math.max(most, engines.length)
    const { body } = await stack.request<{ items: Execution[] }>('GET', `${path}/backup-executions?limit=100`)
    ended = body.items.filter(({ status, backup_id }) => backup_id !== null && status !== 'creating')
  }
  const seconds = (performance.now() - began) / 1000
  const bad = ended.filter(({ status }) => status !== 'succeeded')
  if (bad.length) throw new Error(`${bad.length} backups did not succeed: ${JSON.stringify(bad[0])}`)
  const by = (how: string): number[] => [ended.filter(({ verified }) => verified?.by === how).length]
  return [
    { what: `${count} backups due at once on one worker, all verified`, unit: 's', figures: [seconds] },
    { what: 'of these, verified by a restore', unit: '', figures: by('restore') },
    { what: 'of these, verified by reading', unit: '', figures: by('reading') },
    { what: 'scratch engines at once, at most', unit: '', figures: [most] },
  ]
}
