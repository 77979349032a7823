import type { Model } from 'mongoose'
import { keyIdOf, unsealJson } from '../lib/seal.ts'
import { freshKeys, keysWith } from './data-keys.ts'
import { sealSecret } from './secrets.ts'

// The registry of fields with sealed secrets: a rotation reseals all of them.

type Owner = Record<'_id' | 'tenant_id', string>
/** What a context may bind a secret to beside its owner. */
type Bound = Owner & { version?: number }

export interface SealedField {
  collection: Model<unknown>['collection']
  path: string
  contextOf: (owner: Bound) => string
}

const fields: SealedField[] = []

/**
 * Declares a field for sealed secrets. Every sealed secret is in such a field, which is named `*_sealed` and is not
 * inside an array. `contextOf`: the context of the seal, by default the document's id; it may bind a `version` that changes
 * with the secret. A value without a dot (`-`) means none.
 */
export function sealedField<D>(
  model: Model<D>,
  path: string,
  contextOf: SealedField['contextOf'] = ({ _id }) => _id,
): void {
  fields.push({ collection: model.collection, path, contextOf })
}

export const sealedFields = (): readonly SealedField[] => fields

/** Some secrets do not open: they are damaged, or their key is missing. */
export class SecretsUnreadable extends Error {
  override readonly name = 'SecretsUnreadable'
  readonly code = 'secrets_unreadable'
  readonly permanent = true

  /** `places`: `<collection>.<path> of <id>` */
  constructor(places: string[]) {
    super(`${places.length} sealed secrets cannot be decrypted: ${places.slice(0, 5).join(', ')}`)
  }
}

/**
 * Reseals all secrets that the newest data key has not sealed. A secret that changes meanwhile keeps the change and is
 * checked again. Idempotent: a repetition continues where the last call stopped. `onProgress` is called after each
 * batch, and can stop it by throwing. Throws SecretsUnreadable after all other secrets are resealed.
 */
export async function resealAll(onProgress: (progress: string) => Promise<void>): Promise<void> {
  const unreadable: string[] = []
  for (const field of fields) {
    const place = `${field.collection.collectionName}.${field.path}`
    const left = await resealField(field, (count) => onProgress(`re-encrypting ${place}: ${count}`))
    unreadable.push(...left.map((id) => `${place} of ${id}`))
  }
  if (unreadable.length) throw new SecretsUnreadable(unreadable)
}

/** Repeats passes over the collection until only unreadable secrets are left. Returns their ids. */
async function resealField(
  field: SealedField,
  onProgress: (count: string) => Promise<void>,
): Promise<string[]> {
  let done = 0
  for (;;) {
    const { current } = await freshKeys()
    const older = { [field.path]: { $regex: String.raw`^(?!${current}\.)[\w-]+\.` } }
    const left = await field.collection.countDocuments(older)
    let found = 0
    const unreadable: string[] = []
    for await (const batch of batches(field, older)) {
      const updates = await Promise.all(batch.map((document) => updateOf(field, document)))
      const possible = updates.filter((update) => update !== null)
      if (possible.length) await field.collection.bulkWrite(possible as never, { ordered: false })
      unreadable.push(...batch.flatMap(({ _id }, i) => (updates[i] ? [] : [_id])))
      found += batch.length
      done += possible.length
      await onProgress(`${done} done, ${Math.max(0, left - found)} left`)
    }
    if (found === unreadable.length) return unreadable
  }
}

const batchSize = 100

/** The matching documents in the order of their ids, each with the fields needed to reseal its secret. */
async function* batches({ collection, path }: SealedField, filter: object): AsyncGenerator<Bound[]> {
  let after = ''
  for (;;) {
    const batch = (await collection
      .find({ ...filter, _id: { $gt: after as never } })
      .project({ tenant_id: 1, version: 1, [path]: 1 })
      .sort({ _id: 1 })
      .limit(batchSize)
      .toArray()) as unknown as Bound[]
    const last = batch.at(-1)
    if (!last) return
    yield batch
    after = last._id
  }
}

/** The update that reseals one secret if it is unchanged since it was read. Null if the secret does not open. */
async function updateOf({ path, contextOf }: SealedField, owner: Bound): Promise<object | null> {
  const sealed = path.split('.').reduce<unknown>((part, name) => Object(part)[name], owner) as string
  const keys = await keysWith(keyIdOf(sealed))
  const context = contextOf(owner)
  let secret: unknown
  try {
    secret = unsealJson(keys, sealed, context)
  } catch {
    return null
  }
  const update = { $set: { [path]: await sealSecret(secret, context) } }
  return { updateOne: { filter: { _id: owner._id, [path]: sealed }, update } }
}
