import type { InstanceEngine } from '../../../drivers/instances.ts'
import { makeTaskCommands } from '../../../drivers/swarm/task-commands.ts'
import type { Logger } from '../../../lib/log.ts'
import { makeDatabaseSampler } from '../database-sampler.ts'
import type { InternalApi } from '../internal-api.ts'
import { dialMachines } from '../machine-engines.ts'
import type { HostPart } from '../part.ts'

interface Parts {
  engine: Pick<InstanceEngine, 'pipe'>
  /** The machines that run on this host. */
  machines: () => string[]
  api: Pick<InternalApi, 'databaseMetrics' | 'replicas'>
  log: Logger
}

/** What the engines of the databases on this host's machines tell of themselves. */
export function databaseMetricsPart({ engine, machines, api, log }: Parts): HostPart {
  const sampler = makeDatabaseSampler({
    commands: makeTaskCommands(dialMachines(engine)),
    machines,
    wanted: api.databaseMetrics,
    send: api.replicas,
    log,
  })
  return {
    name: 'database_metrics',
    version: () => sampler.version(),
    applyWanted: () => sampler.apply(),
    keep: (signal) => sampler.keep(signal),
  }
}
