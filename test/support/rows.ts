import { Container, type ContainerDocument, sealConfigVars } from '../../models/compute/containers.ts'
import { recount } from '../../models/counters.ts'

const inserted = new Set<string>()

/** Inserts containers that are on no engine, for tests that only read records. `removeRows` removes them. */
export async function insertContainers(
  tenant_id: string,
  rows: (Partial<ContainerDocument> & { name: string })[],
): Promise<void> {
  const common = {
    tenant_id,
    status: 'stopped',
    image: 'busybox',
    command: ['sleep', '3600'],
    cpu_cores: 0.1,
    memory_mib: 16,
    restart_policy: 'always',
    log_cap_mib: 64,
    config_vars_sealed: await sealConfigVars(tenant_id, {}),
    desired_state: 'stopped',
  }
  await Container.insertMany(
    rows.map((row) => ({ ...common, ...row })),
    { timestamps: false },
  )
  await recount(Container, tenant_id)
  inserted.add(tenant_id)
}

export async function removeRows(): Promise<void> {
  for (const tenant_id of inserted) await Container.deleteMany({ tenant_id })
}
