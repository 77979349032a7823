import { z } from 'zod'
import { isDeeperThan, runBounds } from '../../lib/ai/bounds.ts'
import { InvalidInput, PermissionDenied } from '../../lib/problem.ts'
import { aiWorkflowOf } from '../../models/ai/ai-workflows.ts'
import { removeSchedule, setSchedule } from '../../models/ai/run-schedules.ts'
import { needTiming, timingFields } from '../deploy/timing.ts'
import { byId } from '../fields.ts'
import { operation } from '../operation.ts'
import { path, ScheduleView, toSchedule } from './views.ts'

/** The HTTP operations on schedules of AI workflows. */
export const aiRunSchedules = [
  operation({
    method: 'PUT',
    path: `${path}/{id}/schedule`,
    permission: 'workflows:update',
    summary: 'Run an AI workflow at the times of a cron expression',
    params: byId,
    body: z.strictObject({
      frequency: timingFields.frequency,
      timezone: timingFields.timezone.default('UTC'),
      input: z.unknown().describe('The input of each run, at most 1 MiB'),
      canary_key: z.string().min(1).max(200).nullable().default(null),
      overlaps: z.boolean().default(false).describe('Whether a run begins while the previous one is open'),
    }),
    responses: { 200: ScheduleView },
    async handle({ caller, params, body: { input = null, ...fields } }) {
      await aiWorkflowOf(caller, params.id)
      // Its runs are started by who sets it.
      if (!caller.permissions.has('workflows:run')) throw new PermissionDenied('workflows:run')
      needTiming(fields)
      const input_json = JSON.stringify(input)
      if (Buffer.byteLength(input_json) > runBounds.inputBytes || isDeeperThan(input, runBounds.depth))
        throw new InvalidInput(422, [
          { pointer: '/input', message: `has more than 1 MiB, or more than ${runBounds.depth} levels` },
        ])
      return toSchedule(await setSchedule(caller.tenant_id, params.id, { ...fields, input_json }))
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{id}/schedule`,
    permission: 'workflows:update',
    summary: 'Delete the schedule of an AI workflow; its open run continues',
    params: byId,
    responses: { 204: null },
    handle: ({ caller, params }) => removeSchedule(caller.tenant_id, params.id),
  }),
]
