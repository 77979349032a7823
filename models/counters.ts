import mongoose, { type Model, Schema } from 'mongoose'
import { schemaOptions } from './schemas.ts'

/**
 * The number of a tenant's documents in a collection, updated in the same transactions as the documents. Every list
 * returns its total, and MongoDB takes 30 ms to count 100,000 documents.
 */
interface CounterDocument {
  /** `<collection>:<tenant>:<part>` */
  _id: string
  count: number
}

// Each count is split over this many documents, so that transactions of one tenant seldom conflict.
const parts = 32

const counterSchema = new Schema<CounterDocument>(
  { _id: { type: String, required: true }, count: { type: Number, required: true } },
  { ...schemaOptions, collection: 'counters' },
)
const Counter = mongoose.model<CounterDocument>('Counter', counterSchema)
type Counted = { collection: { collectionName: string } }
const counted = new Set<string>()

const partId = (collection: string, tenantId: string, part: number): string =>
  `${collection}:${tenantId}:${part}`

async function add(collection: string, tenantId: string, count: number): Promise<void> {
  const part = Math.floor(Math.random() * parts)
  await Counter.updateOne({ _id: partId(collection, tenantId, part) }, { $inc: { count } }, { upsert: true })
}

/** Counts the documents that are saved and deleted one by one. Each must happen in a transaction. */
export function countedByTenant<D extends { tenant_id: string }>(
  schema: Schema<D>,
  collection: string,
): void {
  schema.set('collection', collection)
  counted.add(collection)
  schema.pre('save', async function () {
    if (this.isNew) await add(collection, String(this.get('tenant_id')), 1)
  })
  schema.post(
    'deleteOne',
    { query: true, document: false },
    async function (result: { deletedCount: number }) {
      const { tenant_id } = this.getFilter() as { tenant_id: string }
      if (result.deletedCount) await add(collection, tenant_id, -1)
    },
  )
}

/** The number of a tenant's documents, or null if the collection is not counted. */
export async function countOf(model: Counted, tenantId: string): Promise<number | null> {
  const { collectionName } = model.collection
  if (!counted.has(collectionName)) return null
  const ids = Array.from({ length: parts }, (_, part) => partId(collectionName, tenantId, part))
  const found = await Counter.find({ _id: { $in: ids } }).lean()
  return found.reduce((sum, { count }) => sum + count, 0)
}

/** Removes all counts of a deleted tenant. */
export async function forgetCounts(tenantId: string): Promise<void> {
  const ids = [...counted].flatMap((collection) =>
    Array.from({ length: parts }, (_, part) => partId(collection, tenantId, part)),
  )
  await Counter.deleteMany({ _id: { $in: ids } })
}

/** Recomputes the count of a tenant after writes that bypassed the models. */
export async function recount<D>(model: Model<D>, tenantId: string): Promise<void> {
  const { collectionName } = model.collection
  const count = await model.collection.countDocuments({ tenant_id: tenantId })
  const others = Array.from({ length: parts - 1 }, (_, part) => partId(collectionName, tenantId, part + 1))
  await Counter.deleteMany({ _id: { $in: others } })
  await Counter.updateOne({ _id: partId(collectionName, tenantId, 0) }, { $set: { count } }, { upsert: true })
}
