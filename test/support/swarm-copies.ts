import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { SwarmCopy } from '../../models/deploy/swarm-copies.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { eventually } from './eventually.ts'

/** While a control plane is replaced: waits until it is gone, and hides the copies of what it knew. */
export async function hideSwarmCopies(deployServerId: string, machineId: string): Promise<void> {
  const there = { _id: deployServerId, 'nodes.machine_id': machineId }
  await eventually(async () => !(await DeployServer.exists(there).setOptions(everyTenant)))
  const its = { deploy_server_id: deployServerId, machine_id: machineId }
  await SwarmCopy.updateMany(its, { $set: { whole: 0 } }).setOptions(everyTenant)
}
