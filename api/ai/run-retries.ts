import { z } from 'zod'
import { acceptRetry } from '../../models/ai/run-retry.ts'
import { Id } from '../fields.ts'
import { operation } from '../operation.ts'
import { RunView, toRun } from './run-views.ts'
import { path } from './views.ts'

const runs = `${path}/{id}/runs`

/** The HTTP operation that retries runs of AI workflows. */
export const aiRunRetries = [
  operation({
    method: 'POST',
    path: `${runs}/{run}/retry`,
    permission: 'workflows:run',
    summary:
      'Retry a failed or cancelled run with the same input; nodes whose input is unchanged are not repeated',
    params: z.strictObject({ id: Id, run: Id }),
    responses: { 201: RunView },
    async handle({ caller: { tenant_id, id }, params }) {
      const run = await acceptRetry({ tenant_id, id }, params.id, params.run)
      return { location: `${path}/${params.id}/runs/${run._id}`, body: await toRun(run) }
    },
  }),
]
