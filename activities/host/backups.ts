import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { buffer, text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { createZstdCompress, createZstdDecompress } from 'node:zlib'
import { cancellationSignal } from '@temporalio/activity'
import type {
  ContainerScripts,
  FreeBytes,
  LabelledContainer,
  RunningScript,
  ScriptEnd,
  ScratchEngines,
} from '../../drivers/copies.ts'
import { BackupDamaged, BackupFailed } from '../../drivers/errors.ts'
import {
  type CopyOrder,
  type DumpOrder,
  type DumpReport,
  partMissingCode,
  type ScratchOrder,
  sealPart,
  unsealPart,
  type Verified,
} from '../../lib/backup-protocol.ts'
import { makeQueue } from '../../lib/queue.ts'
import { compared, inParts, parseCounts, parseFound, sumOf } from './backup-counts.ts'
import { patiently } from './patience.ts'

interface Parts {
  scripts: ContainerScripts
  scratch: ScratchEngines
  freeBytes: FreeBytes
  /** The label of the containers of services. */
  serviceLabel: string
  api: {
    /** Begins an attempt to write a copy. */
    begin(deployServerId: string, executionId: string): Promise<DumpOrder>
    keepPart(
      deployServerId: string,
      executionId: string,
      at: { attempt: number; index: number },
      part: Buffer,
    ): Promise<void>
    finish(deployServerId: string, executionId: string, report: DumpReport): Promise<void>
    copy(deployServerId: string, executionId: string, databaseId: string | null): Promise<CopyOrder>
    part(
      deployServerId: string,
      executionId: string,
      databaseId: string | null,
      index: number,
    ): Promise<Readable>
  }
}

const answersWithinMs = 300_000
const lookEveryMs = 200
const sentAtOnce = 3
/** A restored copy takes more room than its dump: indexes, logs of the engine. */
const roomFactor = 3
const lastErrors = 500

/** Activities for copies of databases, on the host of the worker that has the database. All are idempotent. */
export const makeBackupsOnHost = ({ scripts, scratch, freeBytes, serviceLabel, api }: Parts) => {
  const serviceOf = (machine_id: string, value: string): LabelledContainer => ({
    machine_id,
    label: { name: serviceLabel, value },
  })

  /** The dump of a copy. Fails with BackupDamaged where a part is not as it was written. */
  async function* dumpOf(server: string, id: string, databaseId: string | null, { key, parts }: CopyOrder) {
    for (let index = 0; index < parts; index++) {
      const signal = cancellationSignal()
      const asked = patiently(() => api.part(server, id, databaseId, index), { signal })
      const sealed = await asked.then(buffer, (error: unknown) => {
        if (error instanceof Error && Reflect.get(error, 'code') === partMissingCode)
          throw new BackupDamaged(`part ${index + 1} of ${parts} is no longer stored`, error)
        throw error
      })
      try {
        yield unsealPart(key, id, index, sealed)
      } catch (error) {
        throw new BackupDamaged(`part ${index + 1} of ${parts} is not as it was written`, error)
      }
    }
  }

  /** Reads a copy whole, passes it on, and compares its digest. */
  async function readCopy(
    server: string,
    id: string,
    databaseId: string | null,
    order: CopyOrder,
    into: (dump: AsyncIterable<Buffer>) => Promise<void>,
  ): Promise<void> {
    const hash = createHash('sha256')
    let bytes = 0
    const plain = Readable.from(dumpOf(server, id, databaseId, order), { objectMode: false })
    const hashed = async function* (chunks: AsyncIterable<Buffer>) {
      for await (const chunk of chunks) {
        hash.update(chunk)
        bytes += chunk.length
        yield chunk
      }
    }
    const signal = cancellationSignal()
    try {
      if (order.compressed) await pipeline(plain, createZstdDecompress(), hashed, into, { signal })
      else await pipeline(plain, hashed, into, { signal })
    } catch (error) {
      if (error instanceof Error && String(Reflect.get(error, 'code')).startsWith('ZSTD'))
        throw new BackupDamaged('it cannot be decompressed', error)
      throw error
    }
    if (bytes !== order.dump_bytes || hash.digest('hex') !== order.sha256)
      throw new BackupDamaged('its content is not what was written')
  }

  async function awaitAnswer(container: LabelledContainer, healthy: string, mark: string): Promise<void> {
    const deadline = performance.now() + answersWithinMs
    const signal = cancellationSignal()
    for (;;) {
      const { stream, ended } = await scripts.open(container, healthy, mark)
      stream.end()
      await text(stream)
      const { exit_code, errors } = await ended()
      if (exit_code === 0) return
      if (performance.now() > deadline)
        throw new BackupFailed(`the engine that takes the copy does not answer: ${lastOf(errors)}`)
      await delay(lookEveryMs, undefined, { signal })
    }
  }

  /** Restores a copy in an engine that has no data yet, and compares what is in it. */
  async function restoreInto(
    server: string,
    id: string,
    databaseId: string | null,
    order: CopyOrder,
    engine: ScratchOrder,
  ): Promise<Verified> {
    const { machine_id } = engine
    const scratchId = databaseId ?? id
    const container = scratch.containerOf(machine_id, scratchId)
    await scratch.start(machine_id, { ...engine, id: scratchId })
    await awaitAnswer(container, engine.healthy, `health-${scratchId}`)
    const script = await scripts.open(container, engine.restore, `restore-${scratchId}`)
    await readCopy(server, id, databaseId, order, (dump) => feed(script, dump))
    const { output, errors, exit_code } = await read(container, engine.count, `count-${scratchId}`)
    if (exit_code !== 0) throw new BackupFailed(`what was restored cannot be counted: ${lastOf(errors)}`)
    return compared(order.counts, parseFound(output))
  }

  async function read(container: LabelledContainer, script: string, mark: string) {
    const { stream, ended } = await scripts.open(container, script, mark)
    stream.end()
    const output = await text(stream)
    return { output, ...(await ended()) }
  }

  return {
    /** Writes a copy of the database's data. Throws BackupFailed, InstanceNotRunning. */
    async dumpOnHost(deployServerId: string, executionId: string): Promise<void> {
      const order = await api.begin(deployServerId, executionId)
      const { attempt, key, machine_id, service_id } = order
      const container = serviceOf(machine_id, service_id)
      // That of a host's worker that was killed.
      await scripts.end(container, executionId)
      const script = await scripts.open(container, order.script, executionId)
      const signal = cancellationSignal()
      try {
        script.stream.end()
        const hash = createHash('sha256')
        const report = { parts: 0, stored_bytes: 0, dump_bytes: 0 }
        const send = makeQueue(sentAtOnce)
        const hashed = async function* (chunks: AsyncIterable<Buffer>) {
          for await (const chunk of chunks) {
            hash.update(chunk)
            report.dump_bytes += chunk.length
            yield chunk
          }
        }
        const keep = async (chunks: AsyncIterable<Buffer>): Promise<void> => {
          let waiting: Promise<void>[] = []
          for await (const part of inParts(chunks)) {
            const index = report.parts++
            const sealed = sealPart(key, executionId, index, part)
            report.stored_bytes += sealed.length
            const keepPart = () => api.keepPart(deployServerId, executionId, { attempt, index }, sealed)
            const sent = send(() => patiently(keepPart, { signal }))
            sent.catch(() => {}) // awaited below, unless another one fails first
            waiting.push(sent)
            if (waiting.length < sentAtOnce) continue
            await waiting[0]
            waiting = waiting.slice(1)
          }
          await Promise.all(waiting)
        }
        if (order.compress) await pipeline(script.stream, hashed, createZstdCompress(), keep, { signal })
        else await pipeline(script.stream, hashed, keep, { signal })
        const { exit_code, errors } = await script.ended()
        if (exit_code !== 0) throw new BackupFailed(`the copy could not be written: ${lastOf(errors)}`)
        const counts = parseCounts(errors)
        await api.finish(deployServerId, executionId, {
          attempt,
          ...report,
          sha256: hash.digest('hex'),
          counts,
        })
      } catch (error) {
        await scripts.end(container, executionId).catch(() => {})
        signal.throwIfAborted()
        throw error
      }
    },

    /** Ends a dump that may still run. */
    endDumpOnHost: (machineId: string, serviceId: string, executionId: string): Promise<void> =>
      scripts.end(serviceOf(machineId, serviceId), executionId),

    /**
     * Restores a copy into a scratch engine and compares it, or reads it in full if the disk has no room for that. Throws
     * BackupDamaged and BackupFailed.
     */
    async verifyOnHost(deployServerId: string, executionId: string): Promise<Verified> {
      const order = await api.copy(deployServerId, executionId, null)
      const { engine } = order
      if (engine && (await freeBytes(engine.machine_id)) > order.dump_bytes * roomFactor) {
        try {
          return await restoreInto(deployServerId, executionId, null, order, engine)
        } finally {
          await scratch.remove(engine.machine_id, executionId)
        }
      }
      await readCopy(deployServerId, executionId, null, order, async (dump) => {
        for await (const _ of dump);
      })
      return sumOf('reading', order.counts)
    },

    /** Restores a copy into the new volume of a database, compares it, and ends the engine. Throws as verifyOnHost. */
    async refillOnHost(deployServerId: string, executionId: string, databaseId: string): Promise<Verified> {
      const order = await api.copy(deployServerId, executionId, databaseId)
      const { engine } = order
      if (!engine) throw new BackupFailed('the database has no place')
      const verified = await restoreInto(deployServerId, executionId, databaseId, order, engine)
      await scratch.stop(engine.machine_id, databaseId, engine.stop_grace_sec)
      await scratch.remove(engine.machine_id, databaseId)
      return verified
    },

    /** Removes the scratch engine of an execution or a database. */
    removeScratchOnHost: (machineId: string, id: string): Promise<void> => scratch.remove(machineId, id),
  }
}

/** Gives a dump to a script, and waits for its end. Reads the dump whole, unless the script fails. */
async function feed({ stream, ended }: RunningScript, dump: AsyncIterable<Buffer>): Promise<void> {
  const signal = cancellationSignal()
  let end: ScriptEnd | null = null
  const read = async (): Promise<void> => {
    await text(stream).catch(() => '')
    end = await ended()
  }
  const said = read()
  said.catch(() => {}) // awaited below
  try {
    for await (const chunk of dump) {
      if (end === null && !stream.write(chunk))
        await Promise.race([once(stream, 'drain', { signal }).catch(() => said), said])
      signal.throwIfAborted()
      needSuccess(end)
    }
    stream.end()
    await said
    needSuccess(end)
  } finally {
    stream.destroy()
  }
}

function needSuccess(end: ScriptEnd | null): void {
  if (end !== null && end.exit_code !== 0)
    throw new BackupFailed(`the copy could not be restored: ${lastOf(end.errors)}`)
}

const lastOf = (errors: string): string =>
  errors
    .split('\n')
    .filter((line) => line.trim() && !line.startsWith('count '))
    .slice(-3)
    .join(' ')
    .slice(-lastErrors) || 'its script failed'
