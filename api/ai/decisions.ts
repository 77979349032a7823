import { z } from 'zod'
import { decide } from '../../models/ai/decisions.ts'
import { Id } from '../fields.ts'
import { type Operation, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { RunNodeOutputView, toRunNodeWithOutput } from './run-views.ts'
import { path } from './views.ts'

/** The HTTP operation by which a person decides what a node of a run asks. */
export const makeDecisions = ({ tellOfDecision }: Pick<OperationsContext, 'tellOfDecision'>): Operation[] => [
  operation({
    method: 'POST',
    path: `${path}/{id}/runs/{run}/nodes/{node}/decision`,
    permission: 'workflows:run',
    summary: 'Approve or refuse what a node of a run asks',
    params: z.strictObject({ id: Id, run: Id, node: z.string() }),
    body: z.strictObject({
      approved: z.boolean(),
      comment: z
        .string()
        .max(4_000)
        .default('')
        .describe('A comment, which the node’s output or error contains'),
    }),
    responses: { 200: RunNodeOutputView },
    async handle({ caller, params, body }) {
      const by = caller.kind === 'user' ? caller.email : caller.name
      const { id, run, node } = params
      const decided = await decide(caller.tenant_id, id, run, node, { ...body, by })
      tellOfDecision?.(run, node)
      return toRunNodeWithOutput(decided)
    },
  }),
]
