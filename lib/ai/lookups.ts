import type { Redaction } from './redaction.ts'
import type { Type } from './types.ts'

/** What a spec refers to outside of itself. The caller knows the tenant. Null: there is no such thing. */
export interface Lookups {
  /** A connector to a provider of models. */
  connector(reference: string): Promise<object | null>
  /** Whether the provider of a connector that is there has the model. Null: it does not say. */
  model(connector: string, name: string): Promise<boolean | null>
  /** `name`: of the tool of an MCP server, or of the operation of an API. Schemas are null if they are not known. */
  tool(reference: string, name: string | null): Promise<ToolSchemas | null>
  collection(reference: string): Promise<object | null>
  workflow(reference: string, version: number | null): Promise<PublishedWorkflow | null>
  /** What a run of this tenant may take at most. */
  most: { usd: number; tokens: number; wall_sec: number }
  /** The workflow that is validated: it cannot call itself. */
  self_id: string
}

export interface ToolSchemas {
  input_schema: Record<string, unknown> | null
  output_schema: Record<string, unknown> | null
  /** They are a server's tools together: who calls one must name it. */
  are_several?: true
  /** Why no workflow can call it; absent: workflows can. */
  not_callable?: string
}

export interface PublishedWorkflow {
  input: Type
  output: Type
  /** Of its output; absent: nothing. */
  redaction?: Redaction
  /** How many workflows are within each other: 1 if it calls none. */
  depth: number
  /** Ids of itself and of all that it calls, directly or not. */
  calls: readonly string[]
}
