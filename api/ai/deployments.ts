import { z } from 'zod'
import { acceptAiDeployment, acceptUndeployment } from '../../models/ai/deployment-acceptance.ts'
import { accepting, acceptingOrThere } from '../accept.ts'
import { byId } from '../fields.ts'
import { operation } from '../operation.ts'
import { DeploymentView, path, RunnerCores, RunnerMemory, toDeployment } from './views.ts'

/** The HTTP operations that start and end the runner of an AI workflow. */
export const aiDeployments = [
  operation({
    method: 'POST',
    path: `${path}/{id}/deploy`,
    permission: 'workflows:publish',
    summary: 'Start the runner of a version; 200 if this version is deployed',
    params: byId,
    body: z
      .strictObject({
        version: z.int().min(1).nullable().default(null).describe('Null: the one published last'),
        cpu_cores: RunnerCores.default(0.25).describe('Of the runner'),
        memory_mib: RunnerMemory.default(256).describe(
          'Of the runner, which takes some 100 MiB without work',
        ),
      })
      .prefault({}),
    responses: { 200: DeploymentView, 202: DeploymentView },
    refuses: [404],
    handle: ({ caller, params, body }) =>
      acceptingOrThere(caller, toDeployment, (by) => acceptAiDeployment(by, params.id, body)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{id}/undeploy`,
    permission: 'workflows:publish',
    summary: 'End and remove the runners of an AI workflow, its canary’s too',
    params: byId,
    responses: { 202: DeploymentView },
    handle: ({ caller, params }) =>
      accepting(caller, toDeployment, (by) => acceptUndeployment(by, params.id)),
  }),
]
