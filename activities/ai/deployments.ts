import { ApplicationFailure } from '@temporalio/activity'
import { AiDeployment, type AiDeploymentDocument, deploymentsOf } from '../../models/ai/deployments.ts'
import { removeRunner } from '../../models/ai/runners.ts'
import { countOpenRuns } from '../../models/ai/runs.ts'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

const { container: containerKind } = instanceKinds

/** Activities of deployments of AI workflows: short reads and writes of MongoDB. */
export const makeAiDeploymentActivities = ({ image }: { image: string }) => ({
  /** The runner's container, as `carryOut` creates it. */
  async planAiRunner(id: string): Promise<object> {
    const { cpu_cores, memory_mib } = await deploymentById(id)
    return {
      name: `runner-${id}`,
      tags: {},
      managed_by: id,
      host_id: null,
      runner: true,
      image,
      command: ['node', '--disable-warning=ExperimentalWarning', 'worker/runner.ts'],
      entrypoint: [],
      cpu_cores,
      memory_mib,
      disk_gib: null, // it writes none
      restart_policy: 'always',
      log_cap_mib: 16,
      ports: [],
      health_check: null,
      disks: [],
      nics: [],
      config_vars: {},
      start: true,
    }
  },

  async noteAiDeployment(id: string, changes: Pick<AiDeploymentDocument, 'container_id'>): Promise<void> {
    await AiDeployment.updateOne({ _id: id }, { $set: changes }).setOptions(everyTenant)
  },

  /**
   * Ends what the runner may do. Returns the ids of all its containers: also of one that the record does not name, because a
   * killed operation has made it.
   */
  async endAiRunner(id: string): Promise<string[]> {
    const { tenant_id } = await deploymentById(id)
    await removeRunner(tenant_id, id)
    const containers = await containerKind.model.find({ tenant_id, managed_by: id }, { _id: 1 }).lean()
    return containers.map(({ _id }) => _id)
  },

  /** The ids of the deployments that end with this one: with the primary, all of its workflow. */
  async othersOfAiDeployment(id: string): Promise<string[]> {
    const { tenant_id, workflow_id, role } = await deploymentById(id)
    if (role !== 'primary') return []
    const all = await deploymentsOf(tenant_id, workflow_id)
    return all.flatMap(({ _id }) => (_id === id ? [] : [_id]))
  },

  countOpenAiRuns: (id: string): Promise<number> => countOpenRuns(id),
})

export type AiDeploymentActivities = ReturnType<typeof makeAiDeploymentActivities>

/** Throws `not_found`. */
async function deploymentById(id: string): Promise<AiDeploymentDocument> {
  const deployment = await AiDeployment.findById(id).setOptions(everyTenant).lean()
  if (!deployment) throw ApplicationFailure.nonRetryable('The deployment no longer exists', 'not_found')
  return deployment
}
