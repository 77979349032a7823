import { z } from 'zod'
import { stepName } from '../../lib/ai/graph.ts'
import { CallState, HttpCall, ToolCall, ToolsCall } from '../../lib/runner-calls.ts'
import { outputBodyKib } from '../../lib/runner-protocol.ts'
import { callHttp } from '../../models/ai/run-http.ts'
import { callRunTool, offeredTools } from '../../models/ai/run-tools.ts'
import { Id } from '../fields.ts'
import { type Operation, operation, runnersOnly } from '../operation.ts'
import { own } from './runner-protocol.ts'

// Calls that the API makes for runners. Each answers how the call stands, within some seconds.

const node = '/internal/v1/runners/{id}/runs/{run}/nodes/{node}'
const ofNode = z.strictObject({ id: Id, run: Id, node: z.string().regex(stepName) })
const ofAttempt = z.strictObject({ attempt: z.coerce.number().int().min(1).max(1_000_000) })
const responses = { 200: CallState }

export const runnerCalls: Operation[] = [
  operation({
    method: 'POST',
    path: `${node}/http`,
    permission: runnersOnly('a runner makes the requests of its own version'),
    summary: 'Make the request of a node, or ask how it stands',
    params: ofNode,
    query: ofAttempt,
    body: HttpCall,
    json_kib: outputBodyKib,
    responses,
    async handle({ caller, params, query, body }) {
      own(caller, params.id)
      return callHttp(caller, { run_id: params.run, node: params.node, attempt: query.attempt }, body)
    },
  }),

  operation({
    method: 'POST',
    path: `${node}/tool`,
    permission: runnersOnly('a runner calls the tools of its own version'),
    summary: 'Call a tool of a node, or ask how the call stands',
    params: ofNode,
    query: ofAttempt,
    body: ToolCall,
    json_kib: outputBodyKib,
    responses,
    async handle({ caller, params, query, body }) {
      own(caller, params.id)
      return callRunTool(caller, { run_id: params.run, node: params.node, attempt: query.attempt }, body)
    },
  }),

  operation({
    method: 'POST',
    path: `${node}/tools`,
    permission: runnersOnly('a runner offers models the tools of its own version'),
    summary: 'Get the tools that a node offers its model, or ask how that stands',
    params: ofNode,
    query: ofAttempt,
    body: ToolsCall,
    responses,
    async handle({ caller, params, query, body }) {
      own(caller, params.id)
      return offeredTools(caller, { run_id: params.run, node: params.node, attempt: query.attempt }, body)
    },
  }),
]
