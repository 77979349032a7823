import mongoose, { type Model } from 'mongoose'

const optionsConflict = 85

/**
 * Has MongoDB delete documents that many days after their `time`, existing ones included, by an index of this name.
 * Idempotent.
 */
export async function keepFor<D>(model: Model<D>, days: number, name: string): Promise<void> {
  const expireAfterSeconds = days * 86_400
  try {
    await model.collection.createIndex({ time: 1 }, { name, expireAfterSeconds })
  } catch (error) {
    if (!(error instanceof mongoose.mongo.MongoServerError && error.code === optionsConflict)) throw error
    await mongoose.connection.db?.command({
      collMod: model.collection.collectionName,
      index: { name, expireAfterSeconds },
    })
  }
}
