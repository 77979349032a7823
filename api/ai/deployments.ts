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
    summary: 'Start the runner of a version; 200 if this version is already deployed',
    params: byId,
    body: z
      .strictObject({
        version: z
          .int()
          .min(1)
          .nullable()
          .default(null)
          .describe('The version; null: the latest published version'),
        cpu_cores: RunnerCores.default(0.25).describe('CPU cores of the runner'),
        memory_mib: RunnerMemory.default(256).describe(
          'The memory of the runner, which takes about 100 MiB when idle',
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
    summary: 'Stop and remove the runners of an AI workflow, including its canary’s',
    params: byId,
    responses: { 202: DeploymentView },
    handle: ({ caller, params }) =>
      accepting(caller, toDeployment, (by) => acceptUndeployment(by, params.id)),
  }),
]
