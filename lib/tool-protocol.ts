import { z } from 'zod'
import { stageNames } from './probe-stages.ts'

// What platform and hosts say to each other of the probes of tools.

/** The command of a server of stdio, with its secrets. Only the host of its microVM gets it. */
export const ToolCommand = z.strictObject({
  command: z.string(),
  args: z.array(z.string()),
  env: z.record(z.string(), z.string()),
})
export type ToolCommand = z.infer<typeof ToolCommand>

const Json = z.record(z.string(), z.unknown())
/** A tool as an MCP server advertises it. */
export const AdvertisedTool = z.strictObject({
  name: z.string(),
  title: z.string().nullable(),
  description: z.string().nullable(),
  input_schema: Json,
  output_schema: Json.nullable(),
  annotations: Json.nullable(),
})
const Listing = z.strictObject({
  tools: z.array(AdvertisedTool),
  truncated: z.boolean(),
  tools_hash: z.string(),
  transport: z.literal('stdio'),
  protocol_version: z.string().nullable(),
  server: z.strictObject({ name: z.string(), version: z.string() }).nullable(),
})
const Fault = z.strictObject({
  stage: z.enum(stageNames),
  reason: z.string(),
  cause: z.string(),
  remedy: z.string(),
})

/** What a host found. Its secrets are taken out. */
export const ToolFinding = z.strictObject({
  listing: Listing.nullable(),
  fault: Fault.nullable(),
  spent_ms: z.strictObject({ initialize: z.number(), list: z.number() }),
})
export type ToolFinding = z.infer<typeof ToolFinding>
