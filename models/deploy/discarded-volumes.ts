import { everyTenant } from '../tenant-scope.ts'
import { Database } from './databases.ts'
import { KeptServiceVolumes } from './kept-service-volumes.ts'
import { KeptVolumes } from './kept-volumes.ts'
import { forgetStorages } from './storages.ts'

/** A worker's volumes are gone with its disk, as its owner wanted. Idempotent. */
export async function noteVolumesDiscarded(deploy_server_id: string, volume_node: string): Promise<void> {
  const lost = { deploy_server_id, volume_node }
  for (const kept of [
    ...(await KeptVolumes.find(lost).setOptions(everyTenant).lean()),
    ...(await KeptServiceVolumes.find(lost).setOptions(everyTenant).lean()),
  ]) {
    const { _id, tenant_id } = kept
    await forgetStorages(tenant_id, { owner_id: _id })
    await KeptVolumes.deleteOne({ _id, tenant_id })
    await KeptServiceVolumes.deleteOne({ _id, tenant_id })
  }
  const gone = { volume_node: null, machine_port: null, former_volumes: [] }
  const empty = { runs: false, applied: null, has_data: false, ...gone }
  const status_reason = `${volume_node} was replaced, and its volumes were discarded: a start makes an empty database`
  await Database.updateMany(
    { ...lost, operation_id: null },
    { $set: { ...empty, status: 'error', status_reason } },
  ).setOptions(everyTenant)
}
