import type { Fault, Stage } from '../../lib/probe-stages.ts'

/** What the last probe of a tool found. */
export interface Probe {
  /** Which operation probed. */
  by: 'mcp_tools' | 'test'
  at: Date
  stages: Stage[]
  /** Null: every stage was passed. */
  fault: Fault | null
  /** Of a list: null otherwise. */
  transport: 'streamable_http' | 'sse' | 'stdio' | null
  protocol_version: string | null
  server: { name: string; version: string } | null
  tools_count: number | null
  truncated: boolean | null
  tools_hash: string | null
}
