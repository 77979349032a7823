import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { LogFile, LogFiles, LogSource } from '../../drivers/log-files.ts'
import { tornIn } from '../../lib/log-torn.ts'
import { type LogPiece, logPieceBytes, storeFullCode } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeNamedQueues, makeQueue } from '../../lib/queue.ts'
import { PlatformFault } from '../platform-fault.ts'

const compress = promisify(gzip)

// Each check costs two file system calls per instance: 0.5 % of a core for a thousand, measured. inotify would wake
// this process at each written line.
const lookEveryMs = 1_000
// Each upload holds a part in memory, plain and compressed.
const shippedAtOnce = 4

interface Parts {
  files: LogFiles
  /** Returns the offset up to which the archive has the file; null if the output is no longer wanted. */
  send: (instanceId: string, piece: LogPiece, body: Buffer) => Promise<number | null>
  /** Called for each accepted part. */
  onShipped?: (bytes: number) => void
  log: Logger
}

/** An instance or a load balancer with output. */
export interface WithOutput {
  id: string
  engine_id: string
  /** Where it can change while the engine's id stays. */
  cap_mib?: number
}

export type LogShipper = ReturnType<typeof makeLogShipper>

/**
 * Archives output before it is dropped from this host. A file is removed only when the archive has all of it. After a
 * crash, parts are sent again and the archive skips what it has.
 */
export function makeLogShipper({ files, send, onShipped = () => {}, log }: Parts) {
  /** By engine id and cap: nothing else changes a source. */
  const known = new Map<string, LogSource | null>()
  /** By engine id: parts of one instance must arrive in order. */
  const inTurn = makeNamedQueues()
  /** By engine id: since when there is output beyond the cap. */
  const behind = new Map<string, number>()
  const inLane = makeQueue(shippedAtOnce)

  /** False if the output is no longer wanted. */
  async function ship(source: LogSource, file: LogFile): Promise<boolean> {
    const { id, engine_id, engine_created_at } = source
    let at = 0
    while (at < file.bytes) {
      const read = file.read(at, logPieceBytes)
      const torn = tornIn(read)
      // In place of a torn entry, the archive gets a gap: others may be missing after it.
      const isTorn = torn?.from === 0
      const part = torn ? read.subarray(0, torn.from || torn.to) : read
      const piece = { engine_id, engine_created_at, file: file.key, from: at, bytes: part.length }
      const after_gap = isTorn || (file.after_gap && at === 0) ? 'true' : 'false'
      const kept = await send(id, { ...piece, after_gap }, await compress(isTorn ? '' : part, { level: 1 }))
      if (kept === null) return false
      if (kept === at + part.length) onShipped(part.length)
      else if (kept <= at) throw new Error(`the archive has less than it was given: ${kept} of ${at}`)
      at = kept
    }
    return true
  }

  /** Archives, in place of the rest of a file, that it is missing. */
  async function leaveOut({ id, engine_id, engine_created_at }: LogSource, file: LogFile): Promise<void> {
    let at = 0
    while (at < file.bytes) {
      const piece = { engine_id, engine_created_at, file: file.key, from: at, bytes: file.bytes - at }
      const kept = await send(id, { ...piece, after_gap: 'true' }, await compress(''))
      if (kept === null) return
      if (kept <= at) throw new Error(`the archive has less than it was given: ${kept} of ${at}`)
      at = kept
    }
  }

  async function shipBacklog(source: LogSource, signal: AbortSignal): Promise<void> {
    const backlog = files.open(source, 'over_cap')
    try {
      for (const file of backlog) {
        if (signal.aborted) return
        await ship(source, file)
        file.drop()
      }
    } finally {
      for (const file of backlog) file.close()
    }
  }

  async function sourceOf(of: WithOutput): Promise<LogSource | null> {
    const before = known.get(nameOf(of))
    if (before !== undefined) return before
    const source = await files.sourceOf(of.id)
    if (source && source.engine_id !== of.engine_id) return null // it was just recreated
    known.set(nameOf(of), source)
    return source
  }

  async function keepInCap(instance: WithOutput, signal: AbortSignal): Promise<void> {
    try {
      const source = await sourceOf(instance)
      if (!source || !files.isOverCap(source)) return
      if (!behind.has(source.engine_id)) behind.set(source.engine_id, Date.now())
      await inLane(() => inTurn(source.engine_id, () => shipBacklog(source, signal)))
      if (!files.isOverCap(source)) behind.delete(source.engine_id)
    } catch (error) {
      log.warn({ err: error, instance_id: instance.id }, 'output waits to be archived; trying again')
    }
  }

  return {
    /** The longest time in seconds that an instance has been beyond its cap. */
    lagSec: (): number => (behind.size ? (Date.now() - Math.min(...behind.values())) / 1000 : 0),

    /** Keeps these within their caps, until aborted. */
    async keep(instances: () => WithOutput[], signal: AbortSignal): Promise<void> {
      const busy = new Map<string, Promise<void>>()
      while (!signal.aborted) {
        const there = instances()
        for (const instance of there) {
          const { engine_id } = instance
          if (busy.has(engine_id) || !files.hasFull(engine_id)) continue
          const work = keepInCap(instance, signal).finally(() => busy.delete(engine_id))
          busy.set(engine_id, work)
        }
        const names = new Set(there.flatMap((one) => [one.engine_id, nameOf(one)]))
        for (const by of [known, behind]) for (const name of by.keys()) if (!names.has(name)) by.delete(name)
        await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
      }
      await Promise.all(busy.values())
    },

    /**
     * Archives all output of an ended instance. Throws if the archive cannot be reached. If the platform's store is
     * full, the output is lost, and the archive says so: what waits for this call must not wait for an operator.
     */
    shipAll: async (id: string): Promise<void> => {
      const source = await files.sourceOf(id)
      if (!source) return
      await inTurn(source.engine_id, async () => {
        const all = files.open(source, 'all')
        try {
          for (const file of all) {
            const wanted = await ship(source, file).catch(async (error: unknown) => {
              if (!isStoreFull(error)) throw error
              log.error({ err: error, instance_id: id }, 'output is lost: the platform’s store is full')
              await leaveOut(source, file)
              return true
            })
            if (!wanted) return
          }
        } finally {
          for (const file of all) file.close()
        }
      })
    },
  }
}

const isStoreFull = (error: unknown): boolean =>
  error instanceof PlatformFault && error.code === storeFullCode

const nameOf = ({ engine_id, cap_mib }: WithOutput): string => `${engine_id} ${cap_mib ?? ''}`
