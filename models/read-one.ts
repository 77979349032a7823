import DataLoader from 'dataloader'
import type { Model } from 'mongoose'
import { find } from './commands.ts'

/**
 * Reads one document of any tenant by a unique field, `by`; null if there is none, or if its `others` differ. For
 * reads on each request. Not part of a transaction.
 *
 * All that one turn of the event loop asks of a collection by the same field is one command, which is sent after each of these
 * calls: nobody reads what is older than their call (docs/decisions/062-reads-of-one-turn.md).
 */
export async function readOne<D>(
  { collection: { collectionName } }: Model<D>,
  by: string,
  value: string,
  others: Record<string, string> = {},
): Promise<D | null> {
  const name = `${collectionName} ${by}`
  const loader = loaders.get(name) ?? makeLoader(collectionName, by)
  loaders.set(name, loader)
  const found = await loader.load(value)
  const isAsked = found && Object.entries(others).every(([field, other]) => found[field] === other)
  return isAsked ? (found as D) : null
}

type Found = Record<string, unknown>

const loaders = new Map<string, DataLoader<string, Found | null>>()

// More at once would keep the first readers waiting for the last. Not measured.
const mostAtOnce = 100

const makeLoader = (collection: string, by: string): DataLoader<string, Found | null> =>
  new DataLoader((values) => readAll(collection, by, values), {
    cache: false,
    maxBatchSize: mostAtOnce,
    batchScheduleFn: (send) => void setImmediate(send),
  })

async function readAll(collection: string, by: string, values: readonly string[]): Promise<(Found | null)[]> {
  const distinct = [...new Set(values)]
  // A value alone has a shorter way through MongoDB than a list of one.
  const filter = { [by]: distinct.length === 1 ? distinct[0] : { $in: distinct } }
  const documents = await find<Found>(collection, filter, distinct.length)
  const found = new Map(documents.map((document) => [document[by], document]))
  const missing = distinct.filter((value) => !found.has(value))
  // Documents of 16 MiB together have no room in one answer, so those that are missing are asked for alone.
  if (distinct.length > 1) {
    const alone = await Promise.all(missing.map((value) => find<Found>(collection, { [by]: value }, 1)))
    for (const document of alone.flat()) found.set(document[by], document)
  }
  return values.map((value) => found.get(value) ?? null)
}
