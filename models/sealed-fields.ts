import type { Model } from 'mongoose'
import { keyIdOf, unsealJson } from '../lib/seal.ts'
import { freshKeys, keysWith } from './data-keys.ts'
import { sealSecret } from './secrets.ts'

// Where sealed secrets are, so that a rotation finds all of them.

type Owner = Record<'_id' | 'tenant_id', string>

export interface SealedField {
  collection: Model<unknown>['collection']
  path: string
  contextOf: (owner: Owner) => string
}

const fields: SealedField[] = []

/**
 * Declares a field for sealed secrets. It is named `*_sealed` and stands in no array; nowhere else are any. `contextOf`: what its secrets are
 * sealed for, the document's id unless it is said. A value without a dot (`-`) is none.
 */
export function sealedField<D>(
  model: Model<D>,
  path: string,
  contextOf: SealedField['contextOf'] = ({ _id }) => _id,
): void {
  fields.push({ collection: model.collection, path, contextOf })
}

export const sealedFields = (): readonly SealedField[] => fields

/** Some secrets do not open: they were damaged, or their key is gone. */
export class SecretsUnreadable extends Error {
  override readonly name = 'SecretsUnreadable'
  readonly code = 'secrets_unreadable'
  readonly permanent = true

  /** `places`: `<collection>.<path> of <id>` */
  constructor(places: string[]) {
    super(`${places.length} sealed secrets do not open: ${places.slice(0, 5).join(', ')}`)
  }
}

/**
 * Seals anew whatever the newest data key has not sealed. A secret that is changed meanwhile stays as it was changed,
 * and is looked at again. May be repeated, and goes on where it was left. `onProgress` is called after each batch, and
 * stops it by throwing. Throws SecretsUnreadable, once all others are sealed anew.
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

/** Passes over the collection until nothing is left but what does not open. Returns the ids of that. */
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

/** The documents that match, in the order of their ids, each with what it takes to seal its secret anew. */
async function* batches({ collection, path }: SealedField, filter: object): AsyncGenerator<Owner[]> {
  let after = ''
  for (;;) {
    const batch = (await collection
      .find({ ...filter, _id: { $gt: after as never } })
      .project({ tenant_id: 1, [path]: 1 })
      .sort({ _id: 1 })
      .limit(batchSize)
      .toArray()) as unknown as Owner[]
    const last = batch.at(-1)
    if (!last) return
    yield batch
    after = last._id
  }
}

/** Seals one anew, if it is still as it was read. Null where it does not open. */
async function updateOf({ path, contextOf }: SealedField, owner: Owner): Promise<object | null> {
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
