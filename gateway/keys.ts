import type { PublicKey } from '../lib/host-protocol.ts'
import { Host } from '../models/compute/hosts.ts'
import type { FindKey } from './callers.ts'

// All that the gateway asks the database: the public key of a party.

const answersWithinMs = 3_000

export const keyOfHost: FindKey = async (id) => {
  const host = await Host.collection.findOne<{ public_key: PublicKey | null }>(
    { _id: id as never },
    { projection: { public_key: 1 }, timeoutMS: answersWithinMs },
  )
  return host?.public_key ?? null
}
