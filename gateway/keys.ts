import type { PublicKey } from '../lib/host-protocol.ts'
import { Runner } from '../models/ai/runners.ts'
import { Host } from '../models/compute/hosts.ts'
import type { FindKey } from './callers.ts'

// All that the gateway asks the database: the public key of a party.

const findIn =
  ({ collection }: Pick<typeof Host | typeof Runner, 'collection'>): FindKey =>
  async (id) => {
    const party = await collection.findOne<{ public_key: PublicKey | null }>(
      { _id: id as never },
      { projection: { public_key: 1 } },
    )
    return party?.public_key ?? null
  }

export const findKey = { host: findIn(Host), runner: findIn(Runner) }
