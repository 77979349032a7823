import type { InstanceEngine } from '../../../drivers/instances.ts'
import { makeContainerScripts } from '../../../drivers/swarm/container-scripts.ts'
import { serviceLabel } from '../../../drivers/swarm/services.ts'
import { makeTaskCommands } from '../../../drivers/swarm/task-commands.ts'
import type { Logger } from '../../../lib/log.ts'
import { makeDatabaseArchiver } from '../database-archiver.ts'
import type { InternalApi } from '../internal-api.ts'
import { dialMachines } from '../machine-engines.ts'
import type { HostPart } from '../part.ts'

interface Parts {
  engine: Pick<InstanceEngine, 'pipe'>
  /** The machines that run on this host. */
  machines: () => string[]
  api: Pick<InternalApi, 'archives'>
  everySec: number
  log: Logger
}

/** The archives of the logs of the databases on this host's machines. */
export function databaseArchivesPart({ engine, machines, api, everySec, log }: Parts): HostPart {
  const dial = dialMachines(engine)
  const archiver = makeDatabaseArchiver({
    commands: makeTaskCommands(dial),
    scripts: makeContainerScripts(dial, engine.pipe),
    serviceLabel,
    machines,
    api: api.archives,
    everyMs: everySec * 1000,
    log,
  })
  return {
    name: 'database_archives',
    version: () => archiver.version(),
    applyWanted: () => archiver.apply(),
    keep: (signal) => archiver.keep(signal),
  }
}
