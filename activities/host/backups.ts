import { once } from 'node:events'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { activityInfo, cancellationSignal } from '@temporalio/activity'
import type {
  ContainerScripts,
  FreeBytes,
  LabelledContainer,
  RunningScript,
  ScriptEnd,
  ScratchEngines,
} from '../../drivers/copies.ts'
import { BackupDamaged, BackupFailed, EngineUnavailable, InstanceNotRunning } from '../../drivers/errors.ts'
import {
  type CopyOrder,
  type DumpOrder,
  type DumpReport,
  lengthOf,
  partMissingCode,
  type ScratchOrder,
  sealPart,
  unsealPart,
  type Verified,
} from '../../lib/backup-protocol.ts'
import { makeQueue } from '../../lib/queue.ts'
import { compared, foundIn, inParts, parseBase, parseCounts, parseFound, sumOf } from './backup-counts.ts'
import { makeCheck, makeDigest } from './backup-digest.ts'
import { damagedIn, tarOfSegments } from './backup-segments.ts'
import { again, patiently } from './patience.ts'
import { soon } from './soon.ts'

interface Parts {
  scripts: ContainerScripts
  scratch: ScratchEngines
  freeBytes: FreeBytes
  /** The label of the containers of services. */
  serviceLabel: string
  api: {
    /** Begins an attempt to write a copy. Null: it is there already. */
    begin(deployServerId: string, executionId: string, attempt: number): Promise<DumpOrder | null>
    keepPart(
      deployServerId: string,
      executionId: string,
      at: { attempt: number; index: number },
      part: Buffer[],
    ): Promise<void>
    finish(deployServerId: string, executionId: string, report: DumpReport): Promise<void>
    copy(deployServerId: string, executionId: string, databaseId: string | null): Promise<CopyOrder>
    part(
      deployServerId: string,
      executionId: string,
      databaseId: string | null,
      index: number,
    ): Promise<Readable>
    segment(
      deployServerId: string,
      executionId: string,
      databaseId: string | null,
      name: string,
    ): Promise<Readable>
  }
}

const answersWithinMs = 300_000
/** An engine that first goes through its log. */
const recoversWithinMs = 12 * 3_600_000
const lookEveryMs = 200
/** An engine that is about to end has ended by then. */
const refusalLooks = 10
/** Within three minutes a database answers again that has ended, with its machine or alone. */
const startsAgainMs = [500, 1_000, 2_000, 5_000, ...Array.from({ length: 17 }, () => 10_000)]
const sentAtOnce = 3
/** A restored copy takes more room than its dump: indexes, logs of the engine. */
const roomFactor = 3
const lastErrors = 500
/** Whether an engine ended by itself with this code. Zero and codes from 128 on follow signals, also those of a machine that ends. */
const isRefusal = (code: number | null): boolean => code !== null && code > 0 && code < 128

/** Activities for copies of databases, on the host of the worker that has the database. All are idempotent. */
export const makeBackupsOnHost = ({ scripts, scratch, freeBytes, serviceLabel, api }: Parts) => {
  const serviceOf = (machine_id: string, value: string): LabelledContainer => ({
    machine_id,
    label: { name: serviceLabel, value },
  })

  /** The dump of a copy. Fails with BackupDamaged where a part is not as it was written. */
  async function* dumpOf(server: string, id: string, databaseId: string | null, { key, parts }: CopyOrder) {
    const signal = cancellationSignal()
    const fetchPart = async (index: number): Promise<Buffer[]> => {
      if (index === parts) return []
      return Array.fromAsync(await patiently(() => api.part(server, id, databaseId, index), { signal }))
    }
    let coming = fetchPart(0)
    for (let index = 0; index < parts; index++) {
      const sealed = await coming.catch((error: unknown) => {
        if (error instanceof Error && Reflect.get(error, 'code') === partMissingCode)
          throw new BackupDamaged(`part ${index + 1} of ${parts} is no longer stored`, error)
        throw error
      })
      coming = fetchPart(index + 1) // while this one is restored
      coming.catch(() => {}) // awaited in its turn
      yield* opened(key, id, index, { sealed, parts })
    }
  }

  /**
   * Reads a copy whole, passes it on as it is stored, and compares its digest. Without `into` it also decompresses it: otherwise
   * the machine does.
   */
  async function readCopy(
    server: string,
    id: string,
    databaseId: string | null,
    order: CopyOrder,
    into: ((dump: AsyncIterable<Buffer>) => Promise<void>) | null,
  ): Promise<void> {
    const { pass, isAsWritten } = makeCheck(order, { isReadOnly: into === null })
    const parts = Readable.from(dumpOf(server, id, databaseId, order), { objectMode: false })
    const signal = cancellationSignal()
    try {
      await pipeline(parts, pass, into ?? drained, { signal })
    } catch (error) {
      if (error instanceof Error && String(Reflect.get(error, 'code')).startsWith('ZSTD'))
        throw new BackupDamaged('it cannot be decompressed', error)
      throw error
    }
    if (!isAsWritten()) throw new BackupDamaged('its content is not what was written')
  }

  async function awaitAnswer(
    { machine_id, healthy }: Pick<ScratchOrder, 'machine_id' | 'healthy'>,
    scratchId: string,
    withinMs: number,
  ): Promise<void> {
    const container = scratch.containerOf(machine_id, scratchId)
    const deadline = performance.now() + withinMs
    const signal = cancellationSignal()
    for (;;) {
      const { exit_code, errors } = await scripts
        .read(container, soon(healthy), `health-${scratchId}`)
        .catch(async (error: unknown) => {
          if (!(error instanceof InstanceNotRunning)) throw error
          throw await whyEnded(machine_id, scratchId, error)
        })
      if (exit_code === 0) return
      if (performance.now() > deadline)
        throw new BackupFailed(`the engine that takes the copy does not answer: ${lastOf(errors)}`)
      await delay(lookEveryMs, undefined, { signal })
    }
  }

  /** An engine that ends by itself refuses the copy. If its machine ended, the restore is tried again. */
  async function whyEnded(machineId: string, scratchId: string, error: InstanceNotRunning): Promise<Error> {
    const end = await scratch.endOf(machineId, scratchId)
    return end && isRefusal(end.exit_code)
      ? refusedBy(end, error)
      : new EngineUnavailable('The engine that takes the copy ended with its machine', error)
  }

  /** An engine that refuses what it reads ends, often before the script can say why. */
  async function whyRefused(machineId: string, scratchId: string, error: BackupFailed): Promise<Error> {
    for (let looks = 0; looks < refusalLooks; looks++) {
      const end = await scratch.endOf(machineId, scratchId)
      if (end) return isRefusal(end.exit_code) ? refusedBy(end, error) : error
      await delay(lookEveryMs, undefined, { signal: cancellationSignal() })
    }
    return error
  }

  /** Restores a copy in an engine that has no data yet, and compares what is in it. */
  async function restoreInto(
    server: string,
    id: string,
    databaseId: string | null,
    order: CopyOrder,
    engine: ScratchOrder,
  ): Promise<Verified> {
    const { machine_id, files } = engine
    const { log } = order
    const scratchId = databaseId ?? id
    const container = scratch.containerOf(machine_id, scratchId)
    await scratch.start(machine_id, { ...engine, id: scratchId })
    if (!files) await awaitAnswer(engine, scratchId, answersWithinMs)
    const zstd = order.compressed ? 'input' : null
    const script = await scripts.open(container, engine.restore, `restore-${scratchId}`, { zstd })
    await readCopy(server, id, databaseId, order, (dump) =>
      feed(script, dump).catch(async (error: unknown) => {
        throw error instanceof BackupFailed ? await whyRefused(machine_id, scratchId, error) : error
      }),
    )
    if (files) {
      const mark = `fill-${scratchId}`
      if (log?.target) {
        const filling = await scripts.open(container, files.fill_segments, mark)
        await feed(
          filling,
          tarOfSegments(log, (name) => segment(server, id, databaseId, name)),
        )
      }
      await scripts.read(container, files.begin, mark)
      if (files.adopt) await awaitAnswer({ machine_id, healthy: files.adopt }, scratchId, recoversWithinMs)
      await awaitAnswer(engine, scratchId, recoversWithinMs)
    }
    const { output, errors, exit_code } = await scripts.read(container, engine.count, `count-${scratchId}`)
    if (exit_code !== 0) throw new BackupFailed(`the restored data cannot be counted: ${lastOf(errors)}`)
    const found = parseFound(output)
    return log?.target ? foundIn(found) : compared(order.counts, found)
  }

  const segment = (server: string, id: string, databaseId: string | null, name: string) =>
    patiently(() => api.segment(server, id, databaseId, name), { signal: cancellationSignal() })

  async function verifyCopy(server: string, id: string, order: CopyOrder): Promise<Verified> {
    const { engine } = order
    if (engine && (await freeBytes(engine.machine_id)) > order.dump_bytes * roomFactor) {
      try {
        return await restoreInto(server, id, null, order, engine)
      } finally {
        await scratch.remove(engine.machine_id, id)
      }
    }
    await readCopy(server, id, null, order, null)
    return sumOf('reading', order.counts)
  }

  /** Throws InstanceNotRunning if the database does not start again. */
  const untilItAnswers = ({ machine_id, service_id, healthy }: DumpOrder, mark: string): Promise<void> =>
    again(
      async () => {
        const { exit_code, errors } = await scripts.read(serviceOf(machine_id, service_id), healthy, mark)
        if (exit_code !== 0) throw new InstanceNotRunning(service_id, new Error(lastOf(errors)))
      },
      {
        signal: cancellationSignal(),
        waits: startsAgainMs,
        passes: (error) => error instanceof InstanceNotRunning,
      },
    )

  return {
    /**
     * Writes a copy of the database's data, which is tried again if the database ends meanwhile. Throws BackupFailed,
     * InstanceNotRunning.
     */
    async dumpOnHost(deployServerId: string, executionId: string): Promise<void> {
      const { attempt } = activityInfo()
      const order = await api.begin(deployServerId, executionId, attempt)
      if (!order) return
      const { key, machine_id, service_id } = order
      const container = serviceOf(machine_id, service_id)
      if (attempt > 1) {
        await scripts.end(container, executionId) // that of a host's worker that was killed
        await untilItAnswers(order, executionId)
      }
      const zstd = order.compress ? 'output' : null
      const script = await scripts.open(container, order.script, executionId, { zstd })
      const signal = cancellationSignal()
      try {
        script.stream.end()
        const digest = makeDigest()
        const report = { parts: 0, stored_bytes: 0 }
        const send = makeQueue(sentAtOnce)
        const keep = async (chunks: AsyncIterable<Buffer>): Promise<void> => {
          let waiting: Promise<void>[] = []
          for await (const part of inParts(chunks)) {
            const index = report.parts++
            const sealed = sealPart(key, executionId, index, part)
            report.stored_bytes += lengthOf(sealed)
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
        await pipeline(script.stream, digest.plain, keep, { signal })
        const { exit_code, errors, output_bytes } = await script.ended()
        if (exit_code !== 0) throw new BackupFailed(`the copy could not be written: ${lastOf(errors)}`)
        const counts = parseCounts(errors)
        await api.finish(deployServerId, executionId, {
          attempt,
          ...report,
          dump_bytes: output_bytes ?? digest.result().bytes,
          stored_sha256: digest.result().sha256,
          counts,
          base: parseBase(errors),
        })
      } catch (error) {
        await scripts.end(container, executionId).catch(() => {})
        signal.throwIfAborted()
        // The next attempt waits for it, since the platform starts it again.
        if (error instanceof InstanceNotRunning) throw new EngineUnavailable('The database has ended', error)
        throw error
      }
    },

    /** Ends a dump that may still run. */
    endDumpOnHost: (machineId: string, serviceId: string, executionId: string): Promise<void> =>
      scripts.end(serviceOf(machineId, serviceId), executionId),

    /**
     * Restores a copy into a scratch engine and compares it, or reads it in full if the disk has no room for that. Throws
     * BackupDamaged and BackupFailed. Segments that follow on it are read, too.
     */
    async verifyOnHost(deployServerId: string, executionId: string): Promise<Verified> {
      const order = await api.copy(deployServerId, executionId, null)
      const { log } = order
      const verified = await verifyCopy(deployServerId, executionId, order)
      const fetch = (name: string) => segment(deployServerId, executionId, null, name)
      const damaged_segments = log ? await damagedIn(log, fetch) : []
      return damaged_segments.length > 0 ? { ...verified, damaged_segments } : verified
    },

    /** Restores a copy into the new volume of a database, compares it, and ends the engine. Throws as verifyOnHost. */
    async refillOnHost(deployServerId: string, executionId: string, databaseId: string): Promise<Verified> {
      const order = await api.copy(deployServerId, executionId, databaseId)
      const { engine } = order
      if (!engine) throw new BackupFailed('the database is on no worker')
      const { machine_id, stop_grace_sec } = engine
      const verified = await restoreInto(deployServerId, executionId, databaseId, order, engine)
      await scratch.stop(machine_id, databaseId, stop_grace_sec)
      await scratch.remove(machine_id, databaseId)
      return verified
    },

    /** Removes the scratch engine of an execution or a database. */
    removeScratchOnHost: (machineId: string, id: string): Promise<void> => scratch.remove(machineId, id),
  }
}

async function drained(dump: AsyncIterable<Buffer>): Promise<void> {
  for await (const _ of dump);
}

/** Throws BackupDamaged. */
function opened(
  key: string,
  id: string,
  index: number,
  { sealed, parts }: { sealed: Buffer[]; parts: number },
): Buffer[] {
  try {
    return unsealPart(key, id, index, sealed)
  } catch (error) {
    throw new BackupDamaged(`part ${index + 1} of ${parts} is not as it was written`, error)
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
  // A cancelled step waits for nothing: the script would wait for the rest of the dump.
  const broken = () => (signal.aborted ? undefined : said)
  try {
    for await (const chunk of dump) {
      if (end === null && !stream.write(chunk))
        await Promise.race([once(stream, 'drain', { signal }).catch(broken), said])
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

const refusedBy = ({ output }: { output: string }, cause: Error): BackupFailed =>
  new BackupFailed(`the engine that takes the copy ended: ${lastOf(output)}`, cause)

function needSuccess(end: ScriptEnd | null): void {
  if (end !== null && end.exit_code !== 0)
    throw new BackupFailed(`the copy could not be restored: ${lastOf(end.errors)}`)
}

function lastOf(errors: string): string {
  const last = errors
    .split('\n')
    .filter((line) => line.trim() && !line.startsWith('count '))
    .slice(-3)
    .join(' ')
    .slice(-lastErrors)
  return last.endsWith('Killed') ? `${last}${mayLackMemory}` : last || 'its script failed'
}

const mayLackMemory = ' (by the kernel, if the database has too little memory: give it more)'
