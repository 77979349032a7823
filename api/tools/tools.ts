import { z } from 'zod'
import { PermissionDenied } from '../../lib/problem.ts'
import { changeTool, createTool, deleteTool } from '../../models/tools/changes.ts'
import { type GivenDefinition, givenOf } from '../../models/tools/definitions.ts'
import { credentialStorage } from '../../models/tools/secrets.ts'
import { definition, Tool, toolOf } from '../../models/tools/tools.ts'
import { byId, forced } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import { parse } from '../problems.ts'
import { merged, NewTool, ToolChanges } from './fields.ts'
import { ToolSummaryView, ToolView, toSummary, toView } from './views.ts'

const path = '/api/v1/tools'

const connectorIn = (tool: z.output<typeof NewTool>): string | null =>
  'auth' in tool && 'connector_id' in tool.auth ? (tool.auth.connector_id ?? null) : null

/** A tool lets its users act with the credential of its connector. */
function mayUse({ permissions }: Caller, connectorId: string | null): void {
  if (connectorId !== null && !permissions.has('connectors:use')) throw new PermissionDenied('connectors:use')
}

/** The command of a tool runs in a microVM of the tenant. */
function mayRun({ permissions }: Caller, { transport }: GivenDefinition): void {
  if (transport === 'stdio' && !permissions.has('microvms:create'))
    throw new PermissionDenied('microvms:create')
}

/** The HTTP operations on the definitions of tools. */
export const tools = [
  // Before `get`, whose path would match it with the id `credential-storage`.
  operation({
    method: 'GET',
    path: `${path}/credential-storage`,
    permission: 'tools:read',
    summary: 'Get whether tools’ secrets can be stored, and the id of the key that seals new ones',
    responses: {
      200: z
        .strictObject({
          configured: z.boolean(),
          key_id: z.string().nullable().describe('The id of the data key that seals new secrets'),
        })
        .meta({ id: 'CredentialStorage' }),
    },
    handle: credentialStorage,
  }),

  list({
    path,
    permission: 'tools:read',
    summary: 'List tools',
    model: Tool,
    view: ToolSummaryView,
    toView: toSummary,
    scope: ({ tenant_id }) => ({ tenant_id }),
  }),

  operation({
    method: 'POST',
    path,
    permission: 'tools:create',
    summary: 'Define a tool; its secret is stored sealed and never shown',
    body: NewTool,
    responses: { 201: ToolView },
    refuses: [403],
    handle: async ({ caller, body }) => {
      mayUse(caller, connectorIn(body))
      mayRun(caller, body)
      const tool = await createTool(caller.tenant_id, body)
      return { location: `${path}/${tool._id}`, body: toView(tool) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{id}`,
    permission: 'tools:read',
    summary: 'Get a tool',
    params: byId,
    responses: { 200: ToolView },
    handle: async ({ caller, params }) => toView(await toolOf(caller, params.id)),
  }),

  operation({
    method: 'PUT',
    path: `${path}/{id}`,
    permission: 'tools:update',
    summary: 'Change a tool; a secret must be given again for another origin',
    params: byId,
    body: ToolChanges,
    responses: { 200: ToolView },
    handle: async ({ caller, params, body }) =>
      toView(
        await changeTool(caller, params.id, (present) => {
          const { name, description, tags } = present
          const whole = { name, description, tags, ...merged(givenOf(definition(present)), body) }
          const tool = parse(NewTool, whole, 422)
          const connectorId = connectorIn(tool)
          if (connectorId !== present.auth.connector_id) mayUse(caller, connectorId)
          mayRun(caller, tool)
          return tool
        }),
      ),
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{id}`,
    permission: 'tools:delete',
    summary: 'Delete a tool that nothing uses, and its secret',
    params: byId,
    query: forced,
    responses: { 204: null },
    handle: ({ caller, params, query }) => deleteTool(caller, params.id, query),
  }),
]
