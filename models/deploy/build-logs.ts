import mongoose, { Schema } from 'mongoose'
import type { BuildLogPart } from '../../lib/deploy-protocol.ts'
import { isDuplicateKey } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'

// The logs of builds are records, so that they outlive the worker.

interface LogPartDocument extends BuildLogPart {
  _id: string
  tenant_id: string
  build_id: string
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
  },
  { ...documentOptions, collection: 'build_log_parts' },
)
tenantScoped(schema)
schema.index({ build_id: 1, attempt: 1, part: 1 }, { unique: true })
const LogPart = mongoose.model<LogPartDocument>('BuildLogPart', schema)

type Build = { _id: string; tenant_id: string }

/** How many lines of an attempt are kept. */
const mostLines = 10_000

/** Keeps a part of a log, and drops what is too old. Idempotent. */
export async function keepLogPart({ _id: build_id, tenant_id }: Build, part: BuildLogPart): Promise<void> {
  try {
    await new LogPart({ ...part, build_id, tenant_id }).save()
  } catch (error) {
    if (isDuplicateKey(error)) return
    throw error
  }
  const old = { build_id, tenant_id, attempt: part.attempt, total: { $lte: part.total - mostLines } }
  if (part.total > mostLines) await LogPart.deleteMany(old)
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

export const forgetLog = async ({ _id: build_id, tenant_id }: Build): Promise<void> => {
  await LogPart.deleteMany({ build_id, tenant_id })
}
