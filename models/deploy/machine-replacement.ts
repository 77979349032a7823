import { NotFound, Problem } from '../../lib/problem.ts'
import { begin, type By } from '../acceptance.ts'
import type { Accepted } from '../operations.ts'
import { type DeployServerDocument, deployServerResource } from './deploy-servers.ts'
import { withVolumesOn } from './storages.ts'

// The acceptance rules for a machine that takes the place of another one.

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
    input: { name },
    reserve: async (server) => {
      if (!server.nodes.some((node) => node.name === name)) throw new NotFound('machine')
      const [first] = discard_volumes ? [] : await withVolumesOn(server, name)
      if (first) throw new StorageOnWorker(name, first)
    },
  })

class StorageOnWorker extends Problem {
  constructor(node: string, { what, name }: { what: string; name: string }) {
    const detail = `${node} has the volumes of the ${what} ${name}; \`discard_volumes\` destroys them`
    super(409, 'storage_on_worker', 'A worker has volumes', detail)
  }
}
