import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../lib/ids.ts'
import { type KeyRing, keyIdOf, sealJson, unsealJson } from '../lib/seal.ts'
import { schemaOptions } from './schemas.ts'

// Envelope encryption: data keys seal secrets, and a master key wraps the data keys, which are stored in MongoDB. To
// replace a master key, only the few data keys are wrapped again.

/** A key of 256 random bits, wrapped. */
export interface DataKeyDocument {
  _id: string
  /** The key for hashes is never replaced: the hashed values are not stored and cannot be hashed again. */
  purpose: 'seal' | 'hash'
  /** 1, 2, …: the highest seals, the others only open. Only one of two concurrent keys gets a number. */
  generation: number
  /** `<master key id>.<base64url>` */
  wrapped: string
  /** When a newer key replaced it. */
  replaced_at: Date | null
  created_at: Date
}

const schema = new Schema<DataKeyDocument>(
  {
    _id: { type: String, required: true },
    purpose: { type: String, required: true },
    generation: { type: Number, required: true },
    wrapped: { type: String, required: true },
    replaced_at: { type: Date, default: null },
    created_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'data_keys' },
)
schema.index({ purpose: 1, generation: 1 }, { unique: true })
export const DataKey = mongoose.model<DataKeyDocument>('DataKey', schema)

/** This process's cached view of the keys. */
interface View {
  readAt: number
  sealing: KeyRing
  hashing: KeyObject
}

// Nothing is sealed with a view older than this. A rotation waits longer than this before it searches for secrets that
// older keys sealed. It misses a secret that was sealed before the wait and written after the search. Such a secret
// still opens: keys are kept for a day after their replacement (`keptMs`), and the next rotation reseals it before it
// removes them.
export const viewLivesMs = 5_000

let readMasterKeys = (): KeyRing => {
  throw new Error('connectDatabase was not called')
}
let masterKeys: KeyRing
let view: View | undefined
/** Unwrapped keys by id. */
const opened = new Map<string, KeyObject>()

/** Sets how to read the master keys: now, at each rotation, and when a key names an unknown one. */
export function useMasterKeys(read: () => KeyRing): void {
  masterKeys = read()
  readMasterKeys = read
  opened.clear()
  view = undefined
}

/** Reads the data keys, and makes missing ones. Throws MasterKeyMissing. */
export async function openDataKeys(): Promise<void> {
  const purposes = await DataKey.distinct('purpose')
  if (purposes.length < 2) {
    await DataKey.createIndexes() // the unique index lets only one process make each key
    await insertDataKey({ _id: newId(), purpose: 'hash', generation: 1 })
    await insertDataKey({ _id: newId(), purpose: 'seal', generation: 1 })
  }
  await readView()
}

/** The keys that seal and open, at most 5 s old: one read every 5 s, not one per call. */
export async function freshKeys(): Promise<KeyRing> {
  if (!view || Date.now() - view.readAt > viewLivesMs) return (await readView()).sealing
  return view.sealing
}

/**
 * The keys, including this one if it exists. Reads them again for an unknown id: another process may have made the key.
 */
export async function keysWith(id: string): Promise<KeyRing> {
  if (view?.sealing.keys.has(id)) return view.sealing
  return (await readView()).sealing
}

/** The key for all keyed hashes. */
export function hashKey(): KeyObject {
  if (!view) throw new Error('connectDatabase was not called')
  return view.hashing
}

type NewKey = Pick<DataKeyDocument, '_id' | 'purpose' | 'generation'>

/** Makes a key, unless one with this purpose and generation exists. */
async function insertDataKey({ _id, purpose, generation }: NewKey): Promise<void> {
  const wrapped = wrap(_id, randomBytes(32).toString('base64'))
  await DataKey.updateOne(
    { purpose, generation },
    { $setOnInsert: { _id, wrapped, replaced_at: null, created_at: new Date() } },
    { upsert: true },
  )
}

/**
 * Makes a new sealing key, and wraps all keys with the current first master key. Idempotent for the same id. All
 * processes seal with the new key after `viewLivesMs` at most. Throws MasterKeyMissing.
 */
export async function replaceDataKey(id: string): Promise<void> {
  masterKeys = readMasterKeys()
  for (const { _id, wrapped } of await DataKey.find().lean()) {
    if (keyIdOf(wrapped) === masterKeys.current) continue
    await DataKey.updateOne({ _id, wrapped }, { $set: { wrapped: wrap(_id, unwrap(_id, wrapped)) } })
  }
  const newest = await DataKey.findOne({ purpose: 'seal' }).sort({ generation: -1 }).lean()
  const isMade = newest?._id === id
  const generation = (newest?.generation ?? 0) + (isMade ? 0 : 1)
  if (!isMade) await insertDataKey({ _id: id, purpose: 'seal', generation })
  await DataKey.updateMany(
    { purpose: 'seal', generation: { $lt: generation }, replaced_at: null },
    { $set: { replaced_at: new Date() } },
  )
}

// Longer than any request or step takes from sealing a secret to writing it, even in a process that was paused.
const keptMs = 24 * 3_600_000

/**
 * Removes the keys that were replaced at least a day ago. Call only after all secrets of older keys are resealed: these
 * keys have sealed nothing since, and all that they sealed was written and found long ago.
 */
export async function forgetDataKeys(): Promise<void> {
  await DataKey.deleteMany({ purpose: 'seal', replaced_at: { $lt: new Date(Date.now() - keptMs) } })
}

/** The sealing key, and the ids of all master keys that wrap some key. */
export async function keysInUse(): Promise<{ current: DataKeyDocument; masterKeyIds: string[] }> {
  const keys = await DataKey.find().sort({ generation: -1 }).lean()
  const current = keys.find(({ purpose }) => purpose === 'seal')
  if (!current) throw new Error('there are no data keys: connectDatabase was not called')
  return { current, masterKeyIds: [...new Set(keys.map(({ wrapped }) => keyIdOf(wrapped)))].toSorted() }
}

async function readView(): Promise<View> {
  const readAt = Date.now()
  // Outside any running transaction, whose snapshot may be older. A majority read cannot be rolled back by a failover.
  const stored = await DataKey.find().session(null).readConcern('majority').sort({ generation: -1 }).lean()
  const hash = stored.find(({ purpose }) => purpose === 'hash')
  const [newest, ...older] = stored.filter(({ purpose }) => purpose === 'seal')
  if (!newest || !hash) throw new Error('there are no data keys: connectDatabase was not called')
  const keys = new Map([newest, ...older].map((key) => [key._id, keyOf(key)]))
  const read = { readAt, sealing: { current: newest._id, keys }, hashing: keyOf(hash) }
  if (!view || view.readAt <= readAt) view = read
  return read
}

function keyOf({ _id, wrapped }: Pick<DataKeyDocument, '_id' | 'wrapped'>): KeyObject {
  const known = opened.get(_id)
  if (known) return known
  const key = createSecretKey(Buffer.from(unwrap(_id, wrapped), 'base64'))
  opened.set(_id, key)
  return key
}

const contextOf = (id: string): string => `data_keys:${id}`
const wrap = (id: string, key: string): string => sealJson(masterKeys, key, contextOf(id))

function unwrap(id: string, wrapped: string): string {
  const masterId = keyIdOf(wrapped)
  // The key may have been added to the file since this process started.
  if (!masterKeys.keys.has(masterId)) masterKeys = readMasterKeys()
  if (!masterKeys.keys.has(masterId)) throw new MasterKeyMissing(masterId, 'is missing')
  try {
    return unsealJson<string>(masterKeys, wrapped, contextOf(id))
  } catch (cause) {
    throw new MasterKeyMissing(masterId, 'is another key', cause)
  }
}

/** A data key does not open with the available master keys. */
export class MasterKeyMissing extends Error {
  override readonly name = 'MasterKeyMissing'
  readonly code = 'master_key_missing'
  readonly permanent = true
  readonly master_key_id: string

  constructor(masterKeyId: string, why: 'is missing' | 'is another key', cause?: unknown) {
    super(`the master key ${masterKeyId} ${why} in KEELSON_MASTER_KEY or its file`, { cause })
    this.master_key_id = masterKeyId
  }
}
