import { z } from 'zod'
import { bounds } from '../../lib/ai/bounds.ts'
import { NodeName } from '../../lib/ai/fields.ts'
import { stepName } from '../../lib/ai/graph.ts'
import { Called, ItemEnds, OpenedMap, WorkflowCall } from '../../lib/runner-maps.ts'
import { Given, outputBodyKib } from '../../lib/runner-protocol.ts'
import { callWorkflow } from '../../models/ai/child-runs.ts'
import { endItems, openItems } from '../../models/ai/run-items.ts'
import { givenForNode } from '../../models/ai/run-nodes.ts'
import { Id } from '../fields.ts'
import { type Operation, operation, runnersOnly } from '../operation.ts'
import { own } from './runner-protocol.ts'

// The internal API of runners for maps, and for nodes that are runs of other workflows.

const node = '/internal/v1/runners/{id}/runs/{run}/nodes/{node}'
const ofNode = z.strictObject({ id: Id, run: Id, node: NodeName })
const attempt = z.coerce.number().int().min(1).max(1_000_000)

export const makeRunnerMaps = (): Operation[] => [
  operation({
    method: 'POST',
    path: `${node}/items`,
    permission: runnersOnly('a runner carries out the maps of its own runs'),
    summary: 'Get which items of a map are done, and the values that the others’ expressions name',
    params: ofNode,
    query: z.strictObject({ attempt, all: z.coerce.number().int().min(0).max(bounds.mapItems) }),
    responses: { 200: OpenedMap },
    async handle({ caller, params, query }) {
      own(caller, params.id)
      return openItems(caller, params.run, params.node, query.attempt, query.all)
    },
  }),

  operation({
    method: 'PUT',
    path: `${node}/items`,
    permission: runnersOnly('a runner ends the items of its own runs'),
    summary: 'End items of a map with their outputs or failures',
    params: ofNode,
    body: ItemEnds,
    json_kib: outputBodyKib,
    responses: { 204: null },
    async handle({ caller, params, body }) {
      own(caller, params.id)
      await endItems(caller, params.run, params.node, body.ends)
    },
  }),

  operation({
    method: 'GET',
    path: `${node}/values`,
    permission: runnersOnly('a runner gets the values of its own runs'),
    summary: 'Get the values that the expressions of a node name',
    params: ofNode,
    responses: { 200: Given },
    async handle({ caller, params }) {
      own(caller, params.id)
      return givenForNode(caller, params.run, params.node)
    },
  }),

  operation({
    method: 'POST',
    path: `${node}/call`,
    permission: runnersOnly('a runner starts what its own version names'),
    summary: 'Accept the run of another workflow for a node, or for an item of a map',
    params: z.strictObject({ id: Id, run: Id, node: z.string().regex(stepName) }),
    query: z.strictObject({ attempt }),
    body: WorkflowCall,
    json_kib: outputBodyKib,
    responses: { 200: Called },
    async handle({ caller, params, query, body }) {
      own(caller, params.id)
      return callWorkflow(caller, params.run, params.node, query.attempt, body.input)
    },
  }),
]
