import { z } from 'zod'
import { AdvertisedTool } from '../../lib/tool-protocol.ts'
import { transports } from '../../models/tools/definitions.ts'
import { probeTools } from '../../models/tools/probes.ts'
import { testTool } from '../../models/tools/tests.ts'
import { byId, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'
import { WebUrl } from './fields.ts'
import { FaultView, faultView, ServerView, StageView } from './views.ts'

const path = '/api/v1/tools/{id}'

const McpToolsView = z
  .strictObject({
    tools: z.array(AdvertisedTool),
    total: z.int().describe('The number of tools in this answer'),
    truncated: z.boolean().describe('Whether the server has more tools'),
    tools_hash: z.string().describe('A hash that changes when the server advertises something else'),
    changed: z
      .boolean()
      .nullable()
      .describe('Whether `tools_hash` has changed since the last probe; null: there was none'),
    transport: z.enum(transports).exclude(['auto']),
    protocol_version: z.string().nullable(),
    server: ServerView.nullable(),
    stages: z.array(StageView),
    probed_at: Timestamp,
  })
  .meta({ id: 'McpTools' })

const VerdictView = z
  .strictObject({
    ok: z.boolean(),
    fault: FaultView.nullable(),
    stages: z.array(StageView),
    credential_sent: z
      .boolean()
      .describe('Whether the credential was sent; only a URL at the tool’s own origin gets it'),
    http_status: z.int().nullable().describe('The status with which `test_url` answered'),
  })
  .meta({ id: 'ToolVerdict' })

/** The HTTP operations that ask the servers of tools. */
export const toolProbes = [
  operation({
    method: 'GET',
    path: `${path}/mcp-tools`,
    permission: 'tools:read',
    summary: 'List the tools that an MCP server advertises now; a 502 names the stage that failed',
    params: byId,
    responses: { 200: McpToolsView },
    refuses: [502, 504],
    lasts: 'probe',
    handle: async ({ caller, params }) => {
      const { tools, at, ...probed } = await probeTools(
        { tenant_id: caller.tenant_id, id: caller.id },
        params.id,
      )
      return {
        tools: tools.map((tool) => ({
          name: tool.name,
          title: tool.title,
          description: tool.description,
          input_schema: tool.input_schema,
          output_schema: tool.output_schema,
          annotations: tool.annotations,
        })),
        total: tools.length,
        truncated: probed.truncated,
        tools_hash: probed.tools_hash,
        changed: probed.changed,
        transport: probed.transport,
        protocol_version: probed.protocol_version,
        server: probed.server,
        stages: probed.stages,
        probed_at: time(at),
      }
    },
  }),

  operation({
    method: 'POST',
    path: `${path}/test`,
    permission: 'tools:update',
    summary: 'Check the form of the tool’s credential, and whether `test_url` can be reached',
    params: byId,
    body: z.strictObject({ test_url: WebUrl.optional() }).default({}),
    responses: { 200: VerdictView },
    lasts: 'probe',
    handle: async ({ caller, params, body }) => {
      const { fault, stages, credential_sent, http_status } = await testTool(caller, params.id, body.test_url)
      return {
        ok: fault === null,
        fault: fault && faultView(fault),
        stages,
        credential_sent,
        http_status,
      }
    },
  }),
]
