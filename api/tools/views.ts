import { z } from 'zod'
import { stageNames } from '../../lib/probe-stages.ts'
import { authTypes, methods, toolKinds, transports } from '../../models/tools/definitions.ts'
import type { Probe } from '../../models/tools/probe-records.ts'
import { definition, type ToolDocument, toolStates } from '../../models/tools/tools.ts'
import { Id, Timestamp, time } from '../fields.ts'

export const StageView = z
  .strictObject({
    stage: z.enum(stageNames),
    status: z.enum(['ok', 'failed', 'skipped']),
    duration_ms: z.number(),
  })
  .meta({ id: 'ProbeStage' })

export const FaultView = z
  .strictObject({
    stage: z.enum(stageNames),
    reason: z.string().describe('A stable code, for programs'),
    cause: z.string(),
    remedy: z.string(),
    authorization_servers: z.array(z.string()).optional(),
  })
  .meta({ id: 'ProbeFault' })

export const ServerView = z.strictObject({ name: z.string(), version: z.string() })
const Json = z.record(z.string(), z.unknown())

const ProbeView = z
  .strictObject({
    by: z.enum(['mcp_tools', 'test']),
    at: Timestamp,
    stages: z.array(StageView),
    fault: FaultView.nullable().describe('What failed; null: every stage was passed'),
    transport: z.enum(transports).exclude(['auto']).nullable(),
    protocol_version: z.string().nullable(),
    server: ServerView.nullable(),
    tools_count: z.int().nullable(),
    truncated: z.boolean().nullable(),
    tools_hash: z.string().nullable().describe('A hash of what the server advertised'),
  })
  .meta({ id: 'ToolProbe' })

const shown = {
  id: Id,
  tenant_id: Id,
  name: z.string(),
  description: z.string(),
  tags: z.record(z.string(), z.string()),
  kind: z.enum(toolKinds),
  transport: z.enum(transports).nullable().describe('For mcp: the transport'),
  url: z.string().nullable(),
  command: z.string().nullable(),
  args: z.array(z.string()),
  image: z.string().nullable().describe('For stdio: the image of the microVM in which the command runs'),
  subnet_id: Id.nullable().describe('For stdio: the subnet of that microVM'),
  env_names: z.array(z.string()).describe('The variables of the command, whose values are secret'),
  method: z.enum(methods).nullable(),
  headers: z.record(z.string(), z.string()),
  builtin: z.string().nullable(),
  auth: z.strictObject({
    type: z.enum(authTypes),
    name: z.string().nullable(),
    connector_id: Id.nullable(),
  }),
  secret_hint: z
    .string()
    .nullable()
    .describe('The last four characters of the secret; null: there is none, or it is short'),
  status: z.enum(toolStates).describe('What the last probe found; `unchecked` after each change'),
  last_probe: ProbeView.nullable(),
  created_at: Timestamp,
  updated_at: Timestamp,
}

/** In lists: without what may be large. */
export const ToolSummaryView = z.strictObject(shown).meta({ id: 'ToolSummary' })

export const ToolView = z
  .strictObject({
    ...shown,
    input_schema: Json.nullable().describe('For http: the JSON Schema of a call’s input'),
    document: Json.nullable().describe('For openapi: the document, if the request contained it'),
  })
  .meta({ id: 'Tool' })

export const toSummary = (tool: ToolDocument): z.output<typeof ToolSummaryView> => ({
  id: tool._id,
  tenant_id: tool.tenant_id,
  name: tool.name,
  description: tool.description,
  tags: tool.tags,
  kind: tool.kind,
  transport: tool.transport,
  url: tool.url,
  command: tool.command,
  args: tool.args,
  image: tool.image,
  subnet_id: tool.subnet_id,
  env_names: tool.env_names,
  method: tool.method,
  headers: tool.headers,
  builtin: tool.builtin,
  auth: { type: tool.auth.type, name: tool.auth.name, connector_id: tool.auth.connector_id },
  secret_hint: tool.secret_hint,
  status: tool.status,
  last_probe: tool.last_probe && probeView(tool.last_probe),
  created_at: time(tool.created_at),
  updated_at: time(tool.updated_at),
})

export function toView(tool: ToolDocument): z.output<typeof ToolView> {
  const { input_schema, document } = definition(tool)
  return { ...toSummary(tool), input_schema, document }
}

const probeView = (probe: Probe): z.output<typeof ProbeView> => ({
  by: probe.by,
  at: time(probe.at),
  stages: probe.stages.map(({ stage, status, duration_ms }) => ({ stage, status, duration_ms })),
  fault: probe.fault && faultView(probe.fault),
  transport: probe.transport,
  protocol_version: probe.protocol_version,
  server: probe.server && { name: probe.server.name, version: probe.server.version },
  tools_count: probe.tools_count,
  truncated: probe.truncated,
  tools_hash: probe.tools_hash,
})

export const faultView = (fault: NonNullable<Probe['fault']>): z.output<typeof FaultView> => ({
  stage: fault.stage,
  reason: fault.reason,
  cause: fault.cause,
  remedy: fault.remedy,
  ...(fault.authorization_servers ? { authorization_servers: fault.authorization_servers } : {}),
})
