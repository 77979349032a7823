import { newId } from '../../lib/ids.ts'
import { Host, type HostDocument } from '../../models/compute/hosts.ts'

const inserted = new Set<string>()

/** Inserts a host without a machine; it gets no instances. `removeInsertedHosts` removes it. */
export async function insertHost(fields: Partial<HostDocument>): Promise<HostDocument> {
  const host = await new Host({ name: `none-${newId()}`, status: 'active', cordoned: true, ...fields }).save()
  inserted.add(host._id)
  return host.toObject()
}

export async function removeInsertedHosts(): Promise<void> {
  for (const _id of inserted) await Host.deleteOne({ _id })
}
