import mongoose from 'mongoose'

// What MongoDB has of a tenant, without the models: for tests that prove that nothing of it has changed or was shown.

/** Collections and fields that change by themselves: what was last used, and what the platform sends again and again. */
const restless = new Set([
  'sessions',
  'last_used_at',
  'event_deliveries',
  'event_subscriptions.failing_since',
  'event_subscriptions.updated_at',
])
/** An operator's rotation of the data key encrypts all secrets again. */
const isSealed = (field: string): boolean => field.endsWith('_sealed')

/** All fields of a tenant's documents as text, by collection, id and field. */
export async function documentsOf(tenantId: string): Promise<Map<string, string>> {
  const { db } = mongoose.connection
  if (!db) throw new Error('MongoDB is not connected')
  const found = new Map<string, string>()
  for (const { name, type } of await db.listCollections().toArray()) {
    if (type !== 'collection' || restless.has(name) || name.startsWith('system.')) continue
    for await (const document of db.collection(name).find({ tenant_id: tenantId }))
      for (const [field, value] of Object.entries(document))
        if (!restless.has(field) && !restless.has(`${name}.${field}`) && !isSealed(field))
          found.set(`${name} ${String(document._id)} ${field}`, JSON.stringify(value))
  }
  return found
}

const uuid = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g

/** All ids in a text: names of tests' things and users' addresses have some too. */
export const idsIn = (text: string): string[] => text.match(uuid) ?? []
