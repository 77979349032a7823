import { instanceKinds } from '../compute/instance-kinds.ts'
import { everyTenant } from '../tenant-scope.ts'
import { deployMachineKinds } from './machine-providers.ts'

/** The hosts of machines of any kind, by the machine's id. Leaves out those that are on no host. */
export async function hostsOfMachines(ids: string[]): Promise<Map<string, string>> {
  const found = await Promise.all(
    deployMachineKinds.map((kind) =>
      instanceKinds[kind].model
        .find({ _id: { $in: ids } }, { host_id: 1 })
        .setOptions(everyTenant)
        .lean(),
    ),
  )
  return new Map(found.flat().flatMap(({ _id, host_id }) => (host_id ? [[_id, host_id] as const] : [])))
}

/** The machines of deploy servers on a host, with the deploy server's id. */
export async function machinesOn(host_id: string): Promise<Map<string, string>> {
  const found = await Promise.all(
    deployMachineKinds.map((kind) =>
      instanceKinds[kind].model
        .find({ host_id, managed_by: { $ne: null } }, { managed_by: 1 })
        .setOptions(everyTenant)
        .lean(),
    ),
  )
  return new Map(
    found.flat().flatMap(({ _id, managed_by }) => (managed_by ? [[_id, managed_by] as const] : [])),
  )
}
