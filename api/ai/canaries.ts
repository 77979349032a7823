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
        .describe('Null: that of the canary which is there, else the one published last'),
      weight: z.number().min(0).max(100).describe('Percent of the new runs; two decimals count'),
      bounds: z
        .strictObject({
          p95_ratio: Ratio.describe('How many times as long as the primary’s its p95 may be; null: any'),
          cost_ratio: Ratio.describe('How many times as much as the primary’s its runs may cost; null: any'),
        })
        .optional()
        .describe('By default those that are there, and none for a new canary'),
      cpu_cores: RunnerCores.nullable().default(null).describe('Of a new canary; null: as the primary’s'),
      memory_mib: RunnerMemory.nullable().default(null).describe('Of a new canary; null: as the primary’s'),
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
    summary: 'End and remove a canary; its open runs fail',
    params: byId,
    responses: { 202: DeploymentView },
    handle: ({ caller, params }) => accepting(caller, toDeployment, (by) => acceptCanaryStop(by, params.id)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{id}/canary/promote`,
    permission: 'workflows:publish',
    summary: 'Make the canary the primary at once; the former one ends with its open runs',
    params: byId,
    responses: { 202: DeploymentView },
    handle: ({ caller, params }) => accepting(caller, toDeployment, (by) => acceptPromotion(by, params.id)),
  }),
]
