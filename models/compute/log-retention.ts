import { everyTenant } from '../tenant-scope.ts'
import { allKinds } from './instance-kinds.ts'
import { dropPieces, LogArchive, LogPiece, removeArchive } from './log-archive.ts'

const dayMs = 86_400_000
const atOnce = 100

/** Removes, oldest first, what is older than so many days, and of each instance what is beyond so many bytes. */
export async function trimArchives({ days, bytes }: { days: number; bytes: number }): Promise<void> {
  const before = new Date(Date.now() - days * dayMs)
  while (await dropPieces({ created_at: { $lt: before } })) {}
  // What a host still has of them would be as old: nobody misses it any more.
  await LogArchive.updateMany(
    { 'former_hosts.left_at': { $lt: before } },
    { $pull: { former_hosts: { left_at: { $lt: before } } } },
  ).setOptions(everyTenant)
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

/** Of instances that were deleted while a piece of theirs was on its way. */
export async function removeStrayArchives(): Promise<void> {
  const fields = allKinds.map(({ kind, model }) => ({
    as: `of_${kind}`,
    from: model.collection.collectionName,
  }))
  const strays = await LogArchive.aggregate<{ _id: string }>([
    ...fields.map((field) => ({ $lookup: { ...field, localField: '_id', foreignField: '_id' } })),
    { $match: Object.fromEntries(fields.map(({ as }) => [as, []])) },
    { $project: { _id: 1 } },
  ]).option(everyTenant)
  for (const { _id } of strays) await removeArchive(_id)
}
