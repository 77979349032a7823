import mongoose, { Schema } from 'mongoose'
import type { BuildLogPart } from '../../lib/deploy-protocol.ts'
import { isDuplicateKey } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { hasStoreRoom } from '../store-room.ts'
import { tenantScoped } from '../tenant-scope.ts'

// The logs of builds are records, so that they outlive the worker.

interface LogPartDocument extends BuildLogPart {
  _id: string
  tenant_id: string
  build_id: string
  /** It has a note instead of its lines, for which there was no room. */
  dropped?: true
}

const schema = new Schema<LogPartDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    build_id: { type: String, required: true },
    attempt: { type: String, required: true },
    part: { type: Number, required: true },
    total: { type: Number, required: true },
    lines: { type: Schema.Types.Mixed, required: true },
    dropped: Boolean,
  },
  { ...documentOptions, collection: 'build_log_parts' },
)
tenantScoped(schema)
schema.index({ build_id: 1, attempt: 1, part: 1 }, { unique: true })
const LogPart = mongoose.model<LogPartDocument>('BuildLogPart', schema)

type Build = { _id: string; tenant_id: string }

/** How many lines of an attempt are kept. */
const mostLines = 10_000

/**
 * Keeps a part of a log, and drops what is too old. Without room in the store, a note takes the place of this part and of those
 * that follow: the build goes on. Idempotent.
 */
export async function keepLogPart({ _id: build_id, tenant_id }: Build, part: BuildLogPart): Promise<void> {
  const its = { build_id, tenant_id, attempt: part.attempt }
  const hasRoom = await hasStoreRoom()
  if (!hasRoom && (await isNoted(its, part))) return
  try {
    await new LogPart({ ...part, ...(hasRoom ? {} : noteFor(part)), ...its }).save()
  } catch (error) {
    if (isDuplicateKey(error)) return
    throw error
  }
  if (part.total > mostLines) await LogPart.deleteMany({ ...its, total: { $lte: part.total - mostLines } })
}

const noteFor = ({ lines }: BuildLogPart): Pick<LogPartDocument, 'lines' | 'dropped'> => ({
  lines: lines
    .slice(0, 1)
    .map(({ time }) => ({ time, line: 'lines are missing here: the platform’s store is full' })),
  dropped: true,
})

/** Whether the last part before this one has the note. */
async function isNoted(
  its: Pick<LogPartDocument, 'build_id' | 'tenant_id' | 'attempt'>,
  { part }: BuildLogPart,
): Promise<boolean> {
  const before = await LogPart.findOne({ ...its, part: { $lt: part } }, { dropped: 1 })
    .sort({ part: -1 })
    .lean()
  return before?.dropped === true
}

/** A line of a log, with its place. */
export interface LoggedLine {
  time: string
  line: string
}
export interface LogPlace {
  attempt: string
  part: number
}

/** The first part after a place. A log is read part by part, as its reader takes them: a whole one has some 20 MB. */
export const logPartAfter = (
  { _id: build_id, tenant_id }: Build,
  after: LogPlace | null,
): Promise<(LogPlace & { lines: LoggedLine[] }) | null> =>
  LogPart.findOne({
    build_id,
    tenant_id,
    ...(after && {
      $or: [{ attempt: { $gt: after.attempt } }, { attempt: after.attempt, part: { $gt: after.part } }],
    }),
  })
    .sort({ attempt: 1, part: 1 })
    .lean()

/** The parts from the last one back, with only the times of their lines. */
export const logTimesBack = ({
  _id: build_id,
  tenant_id,
}: Build): AsyncIterable<LogPlace & { lines: Pick<LoggedLine, 'time'>[] }> =>
  LogPart.find({ build_id, tenant_id }, 'attempt part lines.time')
    .sort({ attempt: -1, part: -1 })
    .lean()
    .cursor({ batchSize: 20 })

/** What the log takes in MongoDB, before compression. */
export async function logBytes({ _id: build_id, tenant_id }: Build): Promise<number> {
  const [sum] = await LogPart.aggregate<{ bytes: number }>([
    { $match: { build_id, tenant_id } },
    { $group: { _id: null, bytes: { $sum: { $bsonSize: '$$ROOT' } } } },
  ])
  return sum?.bytes ?? 0
}

export const forgetLog = async ({ _id: build_id, tenant_id }: Build): Promise<void> => {
  await LogPart.deleteMany({ build_id, tenant_id })
}
