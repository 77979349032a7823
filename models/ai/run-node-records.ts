import mongoose, { Schema } from 'mongoose'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'
import type { StoredValue } from './run-values.ts'

export const runNodeStates = ['running', 'waiting', 'succeeded', 'failed', 'skipped', 'cancelled'] as const
export type RunNodeState = (typeof runNodeStates)[number]

/** The states of what has not ended. `waiting`: for a person. */
export const openNodeStates = ['running', 'waiting'] as const satisfies readonly RunNodeState[]

/** What a person decided. */
export interface Decision {
  approved: boolean
  comment: string
  by: string
  at: Date
}

/** A node of a run, once it has begun or was skipped, or an item of a map while the map is at work. */
export interface AiRunNodeDocument {
  /** `<run>/<node>`: there is one. */
  _id: string
  tenant_id: string
  run_id: string
  /** Its name; of an item, `itemName` of lib/ai/graph.ts. */
  node: string
  /** Of an item: its map and its place there. */
  map?: string
  item?: number
  status: RunNodeState
  /** The attempt that may write its end: counts from 1. Null: it was skipped without any. */
  attempt: number | null
  /** What a switch chose. */
  case: string | null
  /** As readers see it. */
  output: StoredValue | null
  /** The whole output, sealed. Absent: nothing of it is redacted. */
  whole?: StoredValue
  /** JSON of what is redacted of its output. Absent: it is given no redacted values, and makes none. */
  redaction_json?: string
  /** Names all on which its output depends (lib/ai/node-input.ts). Missing: it has not begun. */
  input_sha256?: string
  /** The run that made the output, if this one is a retry and has taken it over. */
  reused_from?: string
  /** Counts the retries that took its output over: the removal of its run contends with them. */
  reuses?: number
  error: { code: string; message: string } | null
  /** Of a node that asks a person. */
  asked?: { message: string; deadline_at: Date }
  decision?: Decision
  /** True until the run's workflow has been told of the decision. */
  untold?: true
  /** Of a map: its items, those that have ended, and those of these that failed. */
  items?: { all: number; ended: number; failed: number }
  /** Of a node, or an item, that is another run: the last one. */
  child_run_id?: string
  started_at: Date | null
  ended_at: Date | null
}

const schema = new Schema<AiRunNodeDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    run_id: { type: String, required: true },
    node: { type: String, required: true },
    map: String,
    item: Number,
    status: { type: String, required: true, enum: runNodeStates },
    attempt: { type: Number, default: null },
    case: { type: String, default: null },
    output: { type: Schema.Types.Mixed, default: null },
    whole: Schema.Types.Mixed,
    redaction_json: String,
    input_sha256: String,
    reused_from: String,
    reuses: Number,
    error: { type: Schema.Types.Mixed, default: null },
    asked: Schema.Types.Mixed,
    decision: Schema.Types.Mixed,
    untold: Boolean,
    items: { type: new Schema({ all: Number, ended: Number, failed: Number }, { _id: false }) },
    child_run_id: String,
    started_at: { type: Date, default: null },
    ended_at: { type: Date, default: null },
  },
  { ...schemaOptions, collection: 'ai_run_nodes' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, run_id: 1, map: 1 })
// The dispatcher queries this every second.
schema.index({ untold: 1 }, { partialFilterExpression: { untold: true } })
export const AiRunNode = mongoose.model<AiRunNodeDocument>('AiRunNode', schema)

export const runNodeId = (runId: string, node: string): string => `${runId}/${node}`
