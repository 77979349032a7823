import { z } from 'zod'
import { acceptCanary, acceptCanaryStop, acceptPromotion } from '../../models/ai/canaries.ts'
import { accepting, acceptingOrThere } from '../accept.ts'
import { byId } from '../fields.ts'
import { operation } from '../operation.ts'
import {
  CanaryView,
  DeploymentView,
  path,
  RunnerCores,
  RunnerMemory,
  toCanary,
  toDeployment,
} from './views.ts'

const Ratio = z.number().min(1).max(1000).nullable().default(null)

/** The HTTP operations on canaries of AI workflows. */
export const aiCanaries = [
  operation({
    method: 'POST',
    path: `${path}/{id}/canary`,
    permission: 'workflows:publish',
    summary: 'Start a canary of a version, or change its weight and bounds (200)',
    params: byId,
    body: z.strictObject({
      version: z
        .int()
        .min(1)
        .nullable()
        .default(null)
        .describe('The version; null: the current canary’s, or else the latest published version'),
      weight: z.number().min(0).max(100).describe('The percentage of new runs, with up to two decimals'),
      bounds: z
        .strictObject({
          p95_ratio: Ratio.describe(
            'The largest p95 of the canary, as a multiple of the primary’s; null: any',
          ),
          cost_ratio: Ratio.describe(
            'The highest cost of the canary’s runs, as a multiple of the primary’s; null: any',
          ),
        })
        .optional()
        .describe('Default: the current bounds; a new canary has none'),
      cpu_cores: RunnerCores.nullable()
        .default(null)
        .describe('CPU cores of a new canary; null: as many as the primary has'),
      memory_mib: RunnerMemory.nullable()
        .default(null)
        .describe('Memory of a new canary, in MiB; null: as much as the primary has'),
    }),
    responses: { 200: CanaryView, 202: CanaryView },
    refuses: [404],
    handle: ({ caller, params, body }) =>
      acceptingOrThere(caller, toCanary, (by) => acceptCanary(by, params.id, body)),
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{id}/canary`,
    permission: 'workflows:publish',
    summary: 'Stop and remove a canary; its open runs fail',
    params: byId,
    responses: { 202: DeploymentView },
    handle: ({ caller, params }) => accepting(caller, toDeployment, (by) => acceptCanaryStop(by, params.id)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{id}/canary/promote`,
    permission: 'workflows:publish',
    summary: 'Make the canary the primary at once; the former primary ends once its open runs have ended',
    params: byId,
    responses: { 202: DeploymentView },
    handle: ({ caller, params }) => accepting(caller, toDeployment, (by) => acceptPromotion(by, params.id)),
  }),
]
