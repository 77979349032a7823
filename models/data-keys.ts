import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../lib/ids.ts'
import { type KeyRing, keyIdOf, sealJson, unsealJson } from '../lib/seal.ts'
import { schemaOptions } from './schemas.ts'

// Envelope encryption: secrets are sealed by data keys, and data keys are kept in MongoDB, wrapped by a master key.
// A master key is replaced by wrapping a few data keys anew, whatever they have sealed.

/** 256 random bits, wrapped. */
export interface DataKeyDocument {
  _id: string
  /** What it is for. The one for hashes is never replaced: what it has hashed cannot be hashed anew. */
  purpose: 'seal' | 'hash'
  /** 1, 2, …: the highest seals, the others still open. Of two that are made at once one gets the number. */
  generation: number
  /** `<master key id>.<base64url>` */
  wrapped: string
  /** Since when a newer one seals. */
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

/** The keys as this process knows them. */
interface View {
  readAt: number
  sealing: KeyRing
  hashing: KeyObject
}

// Nothing is sealed with a view older than this. A rotation waits for longer before it looks for what older keys have
// sealed. What it can miss is what was sealed before its wait and is written after its look: that still opens, since
// keys are kept for a day after they were replaced (`keptMs`), and the next rotation finds it before it removes them.
export const viewLivesMs = 5_000

let readMasterKeys = (): KeyRing => {
  throw new Error('connectDatabase was not called')
}
let masterKeys: KeyRing
let view: View | undefined
/** Unwrapped once. */
const opened = new Map<string, KeyObject>()

/** Where the master keys are; it is read now, for each rotation, and when an unknown one turns up. */
export function useMasterKeys(read: () => KeyRing): void {
  masterKeys = read()
  readMasterKeys = read
  opened.clear()
  view = undefined
}

/** Reads the data keys, and makes those that there are not yet. Throws MasterKeyMissing. */
export async function openDataKeys(): Promise<void> {
  const purposes = await DataKey.distinct('purpose')
  if (purposes.length < 2) {
    await DataKey.createIndexes() // settles which of several processes makes a key
    await insertDataKey({ _id: newId(), purpose: 'hash', generation: 1 })
    await insertDataKey({ _id: newId(), purpose: 'seal', generation: 1 })
  }
  await readView()
}

/** The keys that seal and open, read not long ago: no round trip but one every 5 s. */
export async function freshKeys(): Promise<KeyRing> {
  if (!view || Date.now() - view.readAt > viewLivesMs) return (await readView()).sealing
  return view.sealing
}

/** The keys with this one among them, if there is such a one: who made it may have been another process. */
export async function keysWith(id: string): Promise<KeyRing> {
  if (view?.sealing.keys.has(id)) return view.sealing
  return (await readView()).sealing
}

/** The key of all keyed hashes. */
export function hashKey(): KeyObject {
  if (!view) throw new Error('connectDatabase was not called')
  return view.hashing
}

type NewKey = Pick<DataKeyDocument, '_id' | 'purpose' | 'generation'>

/** Makes a key, unless there is one of its purpose and generation. */
async function insertDataKey({ _id, purpose, generation }: NewKey): Promise<void> {
  const wrapped = wrap(_id, randomBytes(32).toString('base64'))
  await DataKey.updateOne(
    { purpose, generation },
    { $setOnInsert: { _id, wrapped, replaced_at: null, created_at: new Date() } },
    { upsert: true },
  )
}

/**
 * Makes the key that seals from now on, and wraps all of them by the first of the master keys as they are now.
 * Repeating it with the same id changes nothing. Other processes seal with it `viewLivesMs` later at the latest.
 * Throws MasterKeyMissing.
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

// Longer than any request or step takes from sealing a secret to writing it, also where a process was held up.
const keptMs = 24 * 3_600_000

/**
 * Removes the keys that were replaced a day ago or before. To be called when nothing is left that older keys have
 * sealed: nobody has sealed with these since, and what was sealed then has long been written, and found.
 */
export async function forgetDataKeys(): Promise<void> {
  await DataKey.deleteMany({ purpose: 'seal', replaced_at: { $lt: new Date(Date.now() - keptMs) } })
}

/** The key that seals, and the ids of the master keys without which some key does not open. */
export async function keysInUse(): Promise<{ current: DataKeyDocument; masterKeyIds: string[] }> {
  const keys = await DataKey.find().sort({ generation: -1 }).lean()
  const current = keys.find(({ purpose }) => purpose === 'seal')
  if (!current) throw new Error('there are no data keys: connectDatabase was not called')
  return { current, masterKeyIds: [...new Set(keys.map(({ wrapped }) => keyIdOf(wrapped)))].toSorted() }
}

async function readView(): Promise<View> {
  const readAt = Date.now()
  // Beside any transaction that is running, whose snapshot may be older. And only what no change of primary takes back.
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
  // Somebody has put it into the file since this process began.
  if (!masterKeys.keys.has(masterId)) masterKeys = readMasterKeys()
  if (!masterKeys.keys.has(masterId)) throw new MasterKeyMissing(masterId, 'is missing')
  try {
    return unsealJson<string>(masterKeys, wrapped, contextOf(id))
  } catch (cause) {
    throw new MasterKeyMissing(masterId, 'is another key', cause)
  }
}

/** A data key does not open with the master keys at hand. */
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
