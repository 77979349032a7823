import mongoose from 'mongoose'
import { storeFullCode } from '../lib/host-protocol.ts'
import type { Logger } from '../lib/log.ts'
import { gauge, metrics } from '../lib/metrics.ts'
import { Problem } from '../lib/problem.ts'

// What tenants store in MongoDB besides records (output, artifacts, backups) must not fill its disk: the records of the
// whole platform are there.

/** MongoDB's disk has less free space than is kept for records. */
export class StoreFull extends Problem {
  constructor() {
    super(503, storeFullCode, 'The platform’s store is full', 'Nothing was stored. Try again later', {
      headers: { 'Retry-After': '60' },
    })
  }
}

/** In bytes. */
export interface StoreRoom {
  /** Free on MongoDB's disk. */
  free: number
  /** Inside the files of blobs: what removed ones have left, and new ones use first. */
  reusable: number
}

// More than all api replicas store between two looks.
const reusableEnough = 1024 ** 3
const lookEveryMs = 5_000

/** Whether blobs are refused, if `kept` bytes of the disk are for records. */
export const isFull = ({ free, reusable }: StoreRoom, kept: number): boolean =>
  free < kept && reusable < reusableEnough

const guard = { kept: 0, full: false, lookedAt: 0, looking: null as Promise<void> | null }
let say: (isFull: boolean, room: StoreRoom) => void = () => {}

/** Keeps this much of MongoDB's disk free of blobs, from now on in this process. */
export function keepStoreRoom(settings: { KEELSON_STORE_FREE_GIB: number }, log: Logger): void {
  Object.assign(guard, { kept: settings.KEELSON_STORE_FREE_GIB * 1024 ** 3, full: false, lookedAt: 0 })
  say = (full, { free }) => {
    const about = { free_gib: free / 1024 ** 3, kept_gib: settings.KEELSON_STORE_FREE_GIB }
    if (full)
      log.error(
        about,
        'MongoDB’s disk is too full: output, artifacts, backups and answers of models are not stored until it has room',
      )
    else log.info(about, 'MongoDB’s disk has room again')
  }
}

/** Serves the free space as a metric. Call once, in a role that stores blobs. */
export const showStoreRoom = (): void =>
  gauge('keelson_store_free_bytes', 'Free space on MongoDB’s disk', async () => {
    const room = await storeRoom()
    if (!room) throw new Error('MongoDB does not tell the space on its disk')
    return room.free
  })

/** Throws StoreFull. MongoDB is asked every 5 s at most. */
export async function needStoreRoom(): Promise<void> {
  if (guard.kept === 0) return
  if (Date.now() - guard.lookedAt > lookEveryMs)
    await (guard.looking ??= look().finally(() => (guard.looking = null)))
  if (!guard.full) return
  metrics.storeRefused.inc()
  throw new StoreFull()
}

async function look(): Promise<void> {
  // If MongoDB does not answer, storing fails by itself.
  const room = await storeRoom().catch(() => null)
  guard.lookedAt = Date.now()
  if (!room) return
  const full = isFull(room, guard.kept)
  if (full !== guard.full) say(full, room)
  guard.full = full
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
  return { free: fsTotalSize - fsUsedSize, reusable: chunks?.storageStats.freeStorageSize ?? 0 }
}
