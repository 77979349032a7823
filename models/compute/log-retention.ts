import { everyTenant } from '../tenant-scope.ts'
import { dropPieces, LogArchive, LogPiece, removeArchive } from './log-archive.ts'
import { logOwnerModels } from './log-owners.ts'

const dayMs = 86_400_000
const atOnce = 100

/** Removes pieces older than `days`, and the oldest pieces of every archive that is larger than `bytes`. */
export async function trimArchives({ days, bytes }: { days: number; bytes: number }): Promise<void> {
  const before = new Date(Date.now() - days * dayMs)
  while (await dropPieces({ created_at: { $lt: before } })) {}
  // Output that such a host still has would be past its retention too.
  await LogArchive.updateMany(
    { 'former_hosts.left_at': { $lt: before } },
    { $pull: { former_hosts: { left_at: { $lt: before } } } },
  ).setOptions(everyTenant)
  // So would what was cut.
  await LogArchive.updateMany({ 'cut.created_at': { $lt: before } }, { $unset: { cut: 1 } }).setOptions(
    everyTenant,
  )
  const large = await LogArchive.find({ stored_bytes: { $gt: bytes } }, { stored_bytes: 1 })
    .setOptions(everyTenant)
    .limit(atOnce)
    .lean()
  for (const { _id, stored_bytes } of large) await dropOldest(_id, stored_bytes - bytes)
}

async function dropOldest(instanceId: string, excess: number): Promise<void> {
  let count = 0
  let left = excess
  const pieces = LogPiece.find({ instance_id: instanceId }, { stored_bytes: 1 })
    .setOptions(everyTenant)
    .sort({ created_at: 1 })
    .lean()
    .cursor()
  for await (const { stored_bytes } of pieces) {
    if (left <= 0) break
    left -= stored_bytes
    count++
  }
  if (count) await dropPieces({ instance_id: instanceId }, count)
}

/** Removes the archives of what was deleted while a piece was in transit. */
export async function removeStrayArchives(): Promise<void> {
  const fields = logOwnerModels.map(({ kind, collection }) => ({ as: `of_${kind}`, from: collection }))
  const strays = await LogArchive.aggregate<{ _id: string }>([
    ...fields.map((field) => ({ $lookup: { ...field, localField: '_id', foreignField: '_id' } })),
    { $match: Object.fromEntries(fields.map(({ as }) => [as, []])) },
    { $project: { _id: 1 } },
  ]).option(everyTenant)
  for (const { _id } of strays) await removeArchive(_id)
}
