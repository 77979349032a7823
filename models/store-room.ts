import mongoose from 'mongoose'
import { storeFullCode } from '../lib/host-protocol.ts'
import type { Logger } from '../lib/log.ts'
import { gauge, metrics } from '../lib/metrics.ts'
import { Problem } from '../lib/problem.ts'

// What tenants store in MongoDB besides records (output, artifacts, backups) must not fill its disk: the records of the
// whole platform are there. New work is refused before records fill it: a MongoDB without room crashes.

/** MongoDB's disk has less free space than is kept: for records, or for the work that is under way. */
export class StoreFull extends Problem {
  constructor(detail = 'Nothing was stored. Try again later') {
    super(503, storeFullCode, 'The platform’s store is full', detail, { headers: { 'Retry-After': '60' } })
  }
}

/** In bytes. */
export interface StoreRoom {
  /** Free on MongoDB's disk. */
  free: number
  /** MongoDB's disk. */
  total: number
  /** Inside the files of blobs: what removed ones have left, and new ones use first. */
  reusable: number
}

// More than all api replicas store between two looks.
const reusableEnough = 1024 ** 3
const lookEveryMs = 5_000

/** Whether blobs are refused, if `kept` bytes of the disk are for records. */
export const isFull = ({ free, reusable }: Omit<StoreRoom, 'total'>, kept: number): boolean =>
  free < kept && reusable < reusableEnough

/** Whether new work is refused: 95 % of the disk is used, and of a large disk all but `kept`. */
export const refusesWork = ({ free, total }: Omit<StoreRoom, 'reusable'>, kept: number): boolean =>
  free < Math.min(kept, total * 0.05)

const isNearlyFull = ({ free, total }: StoreRoom): boolean => free < total * 0.15

/** What to tell when the disk gets fuller, and when it has room again. */
const levels = {
  nearlyFull: { level: 'warn', words: 'MongoDB’s disk is 85 % full', is: isNearlyFull },
  full: {
    level: 'error',
    words:
      'MongoDB’s disk is too full: output, artifacts, backups and answers of models are not stored until it has room',
    is: isFull,
  },
  refusesWork: {
    level: 'error',
    words: 'MongoDB’s disk is full: no new work is accepted until it has room',
    is: refusesWork,
  },
} as const
type Level = keyof typeof levels

const guard = { kept: 0, lookedAt: 0, looking: null as Promise<void> | null }
let timer: NodeJS.Timeout | undefined
const now: Record<Level, boolean> = { nearlyFull: false, full: false, refusesWork: false }
let logger: Logger | undefined

/** Keeps this much of MongoDB's disk free of blobs, and room for work, from now on in this process. */
export function keepStoreRoom(settings: { KEELSON_STORE_FREE_GIB: number }, log: Logger): void {
  clearInterval(timer)
  Object.assign(guard, { kept: settings.KEELSON_STORE_FREE_GIB * 1024 ** 3, lookedAt: 0 })
  Object.assign(now, { nearlyFull: false, full: false, refusesWork: false })
  logger = log
  if (guard.kept > 0) timer = setInterval(() => void lookOnce(), lookEveryMs).unref()
}

/** Serves the free space as a metric. Call once, in a role that stores blobs. */
export const showStoreRoom = (): void =>
  gauge('keelson_store_free_bytes', 'Free space on MongoDB’s disk', async () => {
    const room = await storeRoom()
    if (!room) throw new Error('MongoDB does not tell the space on its disk')
    return room.free
  })

/** Throws StoreFull if no more blobs are stored. MongoDB is asked every 5 s at most. */
export async function needStoreRoom(): Promise<void> {
  if (guard.kept === 0) return
  if (Date.now() - guard.lookedAt > lookEveryMs) await lookOnce()
  if (now.full) refuse()
}

/** Whether blobs are stored, for what can do without. Counts as a refusal if not. */
export async function hasStoreRoom(): Promise<boolean> {
  try {
    await needStoreRoom()
    return true
  } catch (error) {
    if (error instanceof StoreFull) return false
    throw error
  }
}

/** Throws StoreFull if no new work is accepted, by the last look. What removes or stops something needs none. */
export function needRoomForWork(): void {
  if (now.refusesWork) refuse('Nothing was accepted. Deletions and reads go on. Try again later')
}

function refuse(detail?: string): never {
  metrics.storeRefused.inc()
  throw new StoreFull(detail)
}

const lookOnce = (): Promise<void> => (guard.looking ??= look().finally(() => (guard.looking = null)))

async function look(): Promise<void> {
  // If MongoDB does not answer, storing fails by itself.
  const room = await storeRoom().catch(() => null)
  guard.lookedAt = Date.now()
  if (!room) return
  const about = { free_gib: room.free / 1024 ** 3, kept_gib: guard.kept / 1024 ** 3 }
  for (const [name, { level, words, is }] of Object.entries(levels)) {
    const isNow = is(room, guard.kept)
    if (isNow === now[name as Level]) continue
    now[name as Level] = isNow
    if (isNow) logger?.[level](about, words)
    else logger?.info({ ...about, was: words }, 'MongoDB’s disk has room again')
  }
}

/** Null where MongoDB does not tell, as some hosted ones. */
async function storeRoom(): Promise<StoreRoom | null> {
  const { db } = mongoose.connection
  if (!db) return null
  const { fsTotalSize, fsUsedSize } = await db.command({ dbStats: 1 })
  if (typeof fsTotalSize !== 'number' || typeof fsUsedSize !== 'number') return null
  const [chunks] = await db
    .collection('blobs.chunks')
    .aggregate<{ storageStats: { freeStorageSize?: number } }>([{ $collStats: { storageStats: {} } }])
    .toArray()
    .catch(() => []) // there is no blob yet
  const reusable = chunks?.storageStats.freeStorageSize ?? 0
  return { free: fsTotalSize - fsUsedSize, total: fsTotalSize, reusable }
}
