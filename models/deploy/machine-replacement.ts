import { NotFound, Problem } from '../../lib/problem.ts'
import { begin, type By } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { DeployServer, type DeployServerDocument, deployServerResource } from './deploy-servers.ts'
import { withVolumesOn } from './storages.ts'

// The rules for a machine that takes the place of another one.

export interface AskedReplacement {
  /** The machine's name: `cp`, or `w1` to `w10`. */
  name: string
  /** Also a worker that has volumes: they are destroyed with its disk. */
  discard_volumes: boolean
}

/** Throws as `begin`, NotFound (no such machine) and `storage_on_worker`. */
export const acceptMachineReplacement = (
  by: By,
  id: string,
  { name, discard_volumes }: AskedReplacement,
): Promise<Accepted<DeployServerDocument>> =>
  begin(by, deployServerResource, id, 'replace', {
    input: { name, discard_volumes },
    reserve: async (server) => {
      if (!server.nodes.some((node) => node.name === name)) throw new NotFound('machine')
      if (!discard_volumes) await needNoVolumes(server, name)
    },
  })

/**
 * Has nothing more placed on a worker that is about to be replaced. Placements lock the deploy server, too, so that each
 * either is seen here or sees this. Idempotent. Throws `storage_on_worker` for what was placed since the acceptance.
 */
export const closeWorker = (
  { _id, tenant_id }: Pick<DeployServerDocument, '_id' | 'tenant_id'>,
  { name, discard_volumes }: AskedReplacement,
): Promise<void> =>
  transaction(async () => {
    const server = await lockParent(deployServerResource, tenant_id, _id)
    if (!discard_volumes) await needNoVolumes(server, name)
    const closed = { $set: { 'nodes.$.registered': false } }
    await DeployServer.updateOne({ _id, tenant_id, 'nodes.name': name }, closed)
  }, _id)

async function needNoVolumes(server: DeployServerDocument, name: string): Promise<void> {
  const [first] = await withVolumesOn(server, name)
  if (first) throw new StorageOnWorker(name, first)
}

class StorageOnWorker extends Problem {
  constructor(node: string, { what, name }: { what: string; name: string }) {
    const detail = `${node} has the volumes of the ${what} ${name}; \`discard_volumes\` destroys them`
    super(409, 'storage_on_worker', 'A worker has volumes', detail)
  }
}
