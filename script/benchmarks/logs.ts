import { once } from 'node:events'
import http from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import '../../models/index.ts'
import { LogPiece } from '../../models/compute/log-archive.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { type Row, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const rounds = 3
const lines = 400_000
// One line of the container: a number, a space, 120 characters, a newline.
const lineBytes = 128
const writtenBytes = lines * lineBytes
const lookEveryMs = 100

/**
 * Log throughput from a container that writes as fast as it can into the archive, and out of it again. Bytes are those
 * written; in the engine's files they are some 60 % more.
 */
export async function logs(stack: Stack): Promise<Row[]> {
  await connectDatabase({
    KEELSON_MONGODB_URL: stack.mongodbUrl,
    KEELSON_MASTER_KEY_FILE: stack.masterKeyFile,
  })
  const archived: number[] = []
  const read: number[] = []
  try {
    for (let round = 0; round < rounds; round++) {
      const { id } = await stack.finish('POST', '/api/v1/containers', {
        name: `bench-logs-${round}`,
        image: 'busybox',
        command: ['sh', '-c', `${write}; sleep 3600`],
        cpu_cores: 1,
        memory_mib: 16,
        log_cap_mib: 4,
      })
      // The container began to write a moment before its creation ended.
      const tookMs = await timed(() => isArchived(id))
      archived.push(writtenBytes / 1e6 / (tookMs / 1000))
      const readMs = await timed(() => readOut(stack, id))
      read.push(writtenBytes / 1e6 / (readMs / 1000))
      await stack.finish('DELETE', `/api/v1/containers/${id}`)
    }
  } finally {
    await disconnectDatabase()
  }
  return [
    { what: 'container output written and archived', unit: 'MB/s', figures: archived },
    { what: 'container output read from the archive', unit: 'MB/s', figures: read },
  ]
}

const write = `awk 'BEGIN { for (i = 1; i <= ${lines}; i++) printf "%06d %0120d\\n", i, 0 }'`

/** Resolves when the output beyond the cap is archived, which is all but a few of the container's files. */
async function isArchived(id: string): Promise<void> {
  const inFiles =
    lines * (lineBytes + '{"log":"\\n","stream":"stdout","time":"2026-01-01T00:00:00.123456789Z"}'.length)
  for (;;) {
    const [sum] = await LogPiece.aggregate<{ bytes: number }>([
      { $match: { instance_id: id } },
      { $group: { _id: null, bytes: { $sum: { $subtract: ['$to', '$from'] } } } },
    ]).option(everyTenant)
    if ((sum?.bytes ?? 0) > inFiles - 6 * 2 ** 20) return
    await delay(lookEveryMs)
  }
}

async function readOut({ api, headers }: Stack, id: string): Promise<void> {
  const asking = http.request(`${api}/api/v1/containers/${id}/logs/archive`, { headers })
  asking.end()
  const [answer] = (await once(asking, 'response')) as [http.IncomingMessage]
  let bytes = 0
  for await (const part of answer) bytes += (part as Buffer).length
  if (bytes !== writtenBytes) throw new Error(`${bytes} bytes of ${writtenBytes} were read`)
}
