import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import Docker from 'dockerode'
import { z } from 'zod'
import { makeNamedQueues } from '../../lib/queue.ts'
import type { FoundContainer } from '../containers.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import { connection } from './connection.ts'
import { asking } from './errors.ts'
import { layerBytes, type OwnFiles, ownFiles } from './layer-size.ts'
import { labels, ours } from './spec.ts'

// What containers may write outside their disks. The host measures it while they run, and keeps a record of each limit,
// and of who is beyond it: a host that is killed before it has stopped such a container knows so again.

export interface HostLayers {
  /** Records the limit at a start, after which the container may be measured anew; null: it has none. */
  start(id: string, limitGib: number | null): Promise<void>
  /** Changes the limit. A container that was beyond it is still to be stopped. */
  resize(id: string, limitGib: number | null): Promise<void>
  /** Whether it was beyond its limit since its last start. */
  isFull(id: string): boolean
  forget(id: string): Promise<void>
  /**
   * Measures the one of these whose turn it is, if any. Returns the running ones that are beyond their limits, measured
   * now or before: they are to be stopped.
   */
  look(found: FoundContainer[], signal: AbortSignal): Promise<FoundContainer[]>
}

interface Settings {
  hostId: string
  dockerHost: string
  /** For the records. */
  folder: string
  /** What a container can write a second; null: unknown. */
  bytesPerSec: number | null
}

const gibibyte = 1024 ** 3
/** Between two looks at one container, unless measuring takes long. */
const leastMs = 5_000
const mostMs = 60_000
/**
 * How often its limit a container may take whose layer a quota holds to it: one whose writes fail is not stopped for its
 * empty files as well.
 */
const besideQuota = 2
/** Measuring takes a tenth of one container's time at most. */
const pausesPerLook = 10
/** A record may be older than its container: a start writes it first. */
const startsWithinMs = 3_600_000

/** After how long a container could have written the rest of what it may, within bounds. */
export function nextLookMs({ restBytes, bytesPerSec, tookMs }: Look): number {
  const fullMs = (restBytes / (bytesPerSec ?? gibibyte)) * 1000
  return Math.max(Math.min(Math.max(fullMs, leastMs), mostMs), tookMs * pausesPerLook)
}

interface Look {
  restBytes: number
  bytesPerSec: number | null
  tookMs: number
}

const LayerRecord = z.object({ limit_bytes: z.number(), full: z.boolean() })

/**
 * When a container is looked at again. Kept when it starts again or gets another limit: else it could put off its look for
 * as long as it likes.
 */
interface Turn {
  engine_id: string
  at: number
  /** As `ownFiles` says; asked once, because each answer of the engine costs it milliseconds. */
  files?: OwnFiles | null
}

export async function openHostLayers({
  hostId,
  dockerHost,
  folder,
  bytesPerSec,
}: Settings): Promise<HostLayers> {
  const docker = new Docker(connection(dockerHost))
  const inTurn = makeNamedQueues()
  const fileOf = (id: string): string => join(folder, `${id}.json`)
  const written = await readRecords(folder)
  const records = new Map([...written].map(([id, text]) => [id, LayerRecord.parse(JSON.parse(text))]))
  const notedAt = new Map([...records.keys()].map((id) => [id, Date.now()]))
  const turns = new Map<string, Turn>()
  let tidiedAt = Date.now()

  /** Writes what is known by then. */
  const save = (id: string): Promise<void> =>
    inTurn(id, async () => {
      const record = records.get(id)
      const text = record && JSON.stringify(record)
      if (text === written.get(id)) return
      if (text === undefined) {
        await rm(fileOf(id), { force: true })
        written.delete(id)
      } else {
        await publishText(fileOf(id), text)
        written.set(id, text)
      }
    })

  async function limit(id: string, limitGib: number | null, full: boolean): Promise<void> {
    if (limitGib === null) return forget(id)
    records.set(id, { limit_bytes: Math.round(limitGib * gibibyte), full })
    notedAt.set(id, Date.now())
    const turn = turns.get(id)
    if (turn) turn.at = Math.min(turn.at, Date.now() + leastMs)
    await save(id)
  }

  async function forget(id: string): Promise<void> {
    for (const known of [records, notedAt, turns]) known.delete(id)
    await save(id)
  }

  const isFull = (id: string): boolean => records.get(id)?.full ?? false

  /** The container that waits longest for its look, with its turn, if one does. */
  function due(running: FoundContainer[]): { found: FoundContainer; turn: Turn } | undefined {
    const now = Date.now()
    const waiting = running.flatMap((found) => {
      const { id, engine_id } = found
      const kept = turns.get(id)
      const turn = kept?.engine_id === engine_id ? kept : { engine_id, at: now + leastMs }
      turns.set(id, turn)
      return turn.at <= now ? [{ found, turn }] : []
    })
    return waiting.toSorted((one, other) => one.turn.at - other.turn.at)[0]
  }

  async function measure(found: FoundContainer, turn: Turn, signal: AbortSignal): Promise<void> {
    const { id, engine_id } = found
    const began = Date.now()
    turn.at = began + mostMs // if it fails
    if (turn.files === undefined) turn.files = await ownFiles(docker, engine_id)
    const times = turn.files?.held ? besideQuota : 1
    const most = (records.get(id)?.limit_bytes ?? 0) * times
    const bytes = await layerBytes(docker, found, turn.files, most, signal)
    const record = records.get(id) // it may have another limit by now
    if (bytes === null || !record || turns.get(id) !== turn) return
    const restBytes = record.limit_bytes * times - bytes
    turn.at = Date.now() + nextLookMs({ restBytes, bytesPerSec, tookMs: Date.now() - began })
    if (restBytes >= 0) return
    turns.delete(id) // once it is started again, some seconds are left for removing files
    records.set(id, { ...record, full: true })
    await save(id)
  }

  /** Forgets containers that are gone without a call of `forget`: the host was killed in between. */
  async function tidy(): Promise<void> {
    const before = Date.now() - startsWithinMs
    if (tidiedAt > before) return
    tidiedAt = Date.now()
    const all = await docker.listContainers({ all: true, filters: { label: ours(hostId) } })
    const there = new Set(all.map(({ Labels }) => Labels[labels.resource]))
    for (const [id, at] of notedAt) if (!there.has(id) && at < before) await forget(id)
  }

  return {
    start: (id, limitGib) => limit(id, limitGib, false),
    resize: (id, limitGib) => limit(id, limitGib, isFull(id)),
    isFull,
    forget,
    look: (found, signal) =>
      asking(async () => {
        await tidy()
        const running = found.filter(({ id, state }) => state === 'running' && records.has(id))
        const next = due(running.filter(({ id }) => !isFull(id)))
        if (next) await measure(next.found, next.turn, signal)
        return running.filter(({ id }) => isFull(id))
      }, signal),
  }
}

async function readRecords(folder: string): Promise<Map<string, string>> {
  const names = (await readdir(folder).catch(nullIfMissing)) ?? []
  const records = new Map<string, string>()
  for (const name of names.filter((one) => one.endsWith('.json')))
    records.set(name.slice(0, -'.json'.length), await readFile(join(folder, name), 'utf8'))
  return records
}
