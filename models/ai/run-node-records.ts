import mongoose, { Schema } from 'mongoose'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'
import type { StoredValue } from './run-values.ts'

export const runNodeStates = ['running', 'succeeded', 'failed', 'skipped', 'cancelled'] as const
export type RunNodeState = (typeof runNodeStates)[number]

/** A node of a run, once it has begun or was skipped. */
export interface AiRunNodeDocument {
  /** `<run>/<node>`: there is one. */
  _id: string
  tenant_id: string
  run_id: string
  node: string
  status: RunNodeState
  /** The attempt that may write its end: counts from 1. Null: it was skipped without any. */
  attempt: number | null
  /** What a switch chose. */
  case: string | null
  output: StoredValue | null
  /** Names all on which its output depends (lib/ai/node-input.ts). Missing: it has not begun. */
  input_sha256?: string
  /** The run that made the output, if this one is a retry and has taken it over. */
  reused_from?: string
  /** Counts the retries that took its output over: the removal of its run contends with them. */
  reuses?: number
  error: { code: string; message: string } | null
  started_at: Date | null
  ended_at: Date | null
}

const schema = new Schema<AiRunNodeDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    run_id: { type: String, required: true },
    node: { type: String, required: true },
    status: { type: String, required: true, enum: runNodeStates },
    attempt: { type: Number, default: null },
    case: { type: String, default: null },
    output: { type: Schema.Types.Mixed, default: null },
    input_sha256: String,
    reused_from: String,
    reuses: Number,
    error: { type: Schema.Types.Mixed, default: null },
    started_at: { type: Date, default: null },
    ended_at: { type: Date, default: null },
  },
  { ...schemaOptions, collection: 'ai_run_nodes' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, run_id: 1 })
export const AiRunNode = mongoose.model<AiRunNodeDocument>('AiRunNode', schema)

export const runNodeId = (runId: string, node: string): string => `${runId}/${node}`
