import { availableParallelism } from 'node:os'
import { cancellationSignal, heartbeat } from '@temporalio/activity'
import { HostNotEquipped } from '../../drivers/errors.ts'
import type {
  FoundMachine,
  MachineDisk,
  MachineKind,
  MachineLifecycle,
  MachineSource,
  MachineSpec,
  MachineTransfers,
  ReadyImage,
} from '../../drivers/machines.ts'
import { makeQueue } from '../../lib/queue.ts'
import type { HostedDisks } from './disk-mounts.ts'
import type { Networks } from './networks.ts'

/** What a host asks and tells the API of its machines. */
export interface MachineApi {
  /** Fetched when the machine starts, so that secrets never pass through Temporal. */
  secretsOf: (
    instanceId: string,
  ) => Promise<{ config_vars: Record<string, string>; user_data: string | null }>
  /** The key of a move goes from host to API to host, so that it is in no workflow's history. */
  offerMachine: (instanceId: string, source: MachineSource) => Promise<void>
  sourceOfMachine: (instanceId: string) => Promise<MachineSource>
}

interface Parts {
  /** Null: this host has none. */
  machines: (MachineLifecycle & MachineTransfers) | null
  api: MachineApi
  hosted: Pick<HostedDisks, 'socketsFor' | 'detachAll'>
  networks: Pick<Networks, 'ready' | 'tapsOf'>
}

/** As the platform knows it: without what is this host's own. */
type Ordered = Omit<MachineSpec, 'nics' | 'disks' | 'user_data'> & { disks: Omit<MachineDisk, 'socket'>[] }

// A machine that boots takes a processor for a second or two, more without KVM.
const startsAtOnce = availableParallelism()

/**
 * What a host does with microVMs and VMs. Each step may be run again, by this worker or the next: the engine looks before it
 * acts. The faults are drivers/errors.ts.
 */
export function makeMachinesOnHost({ machines, api, hosted, networks }: Parts) {
  const inSlot = makeQueue(startsAtOnce)

  function engine(): MachineLifecycle & MachineTransfers {
    if (!machines) throw new HostNotEquipped('support for microVMs and VMs')
    return machines
  }

  const prepare = (kind: MachineKind, image: string, digest: string | null = null): Promise<ReadyImage> =>
    engine().prepare(kind, image, { digest, onProgress: heartbeat, signal: cancellationSignal() })

  /** With its taps and sockets, which are made where they are not there. */
  async function whole({ disks, ...spec }: Ordered, operationId: string): Promise<MachineSpec> {
    if (spec.network) await networks.ready(spec.id)
    return {
      ...spec,
      nics: spec.network ? await networks.tapsOf(spec.id) : [],
      disks: await hosted.socketsFor(spec.id, disks, operationId),
    }
  }

  /** Prepares all that a start needs, and starts it in its turn. Called off only until then. */
  async function starting(
    ordered: Ordered,
    operationId: string,
    start: (spec: MachineSpec, configVars: Record<string, string>) => Promise<FoundMachine>,
  ): Promise<FoundMachine> {
    const [{ image_digest }, { config_vars, user_data }] = await Promise.all([
      prepare(ordered.kind, ordered.image, ordered.image_digest),
      api.secretsOf(ordered.id),
    ])
    return inSlot(async () => {
      const spec = await whole({ ...ordered, image_digest }, operationId)
      return start({ ...spec, user_data }, config_vars)
    }, cancellationSignal())
  }

  return {
    /** Makes the image present. With a digest, the very bytes that the name once stood for. */
    prepareMachineOnHost: prepare,

    /** Brings the machine up, image and all, or finds it up. */
    runMachineOnHost: (ordered: Ordered, operationId: string): Promise<FoundMachine> =>
      starting(ordered, operationId, (spec, vars) => engine().run(spec, vars, operationId)),

    rebootMachineOnHost: (ordered: Ordered, operationId: string, graceSec: number): Promise<FoundMachine> =>
      starting(ordered, operationId, (spec, vars) => engine().reboot(spec, vars, operationId, graceSec)),

    /** Makes it of a suspended one. */
    forkMachineOnHost: (fromId: string, ordered: Ordered, operationId: string): Promise<FoundMachine> =>
      starting(ordered, operationId, (spec, vars) => engine().fork(fromId, spec, vars, operationId)),

    suspendMachineOnHost: (id: string): Promise<FoundMachine> => engine().suspend(id),

    resumeMachineOnHost: (ordered: Ordered, operationId: string): Promise<FoundMachine> =>
      inSlot(async () => engine().resume(await whole(ordered, operationId)), cancellationSignal()),

    /** Its exit code; null when it is not there. Called off, it still ends, but nobody waits for it. Its disks are free then. */
    async stopMachineOnHost(id: string, graceSec: number, diskIds: string[] = []): Promise<number | null> {
      await machines?.stop(id, graceSec, cancellationSignal())
      await hosted.detachAll(diskIds)
      return (await machines?.find(id))?.exit_code ?? null
    },

    /** Nothing else of what it is given: its NICs and disks are as they are. */
    async resizeMachineOnHost(id: string, of: Parameters<MachineLifecycle['resize']>[1]): Promise<void> {
      const { cpu_cores, memory_mib, restart_policy } = of
      await engine().resize(id, { cpu_cores, memory_mib, restart_policy })
    },

    /**
     * Removes the machine and all it left on this host; its output is archived first, unless that is to go as well.
     * Succeeds when there is nothing to remove.
     */
    async removeMachineOnHost(
      id: string,
      options: { discard?: boolean; disk_ids?: string[] } = {},
    ): Promise<void> {
      const { discard = false, disk_ids = [] } = options
      await machines?.remove(id, { discard })
      await hosted.detachAll(disk_ids)
    },

    findMachineOnHost: async (id: string): Promise<FoundMachine | null> => (await machines?.find(id)) ?? null,

    /** Lets another host read one that does not run for so long, and tells the API how. */
    async serveMachineOnHost(id: string, seconds: number): Promise<void> {
      await api.offerMachine(id, await engine().serve(id, seconds, cancellationSignal()))
    },

    stopServingMachineOnHost: async (id: string): Promise<void> => machines?.stopServing(id),

    /** Copies it from the host that serves it. Called off, it leaves nothing. */
    async pullMachineOnHost(id: string): Promise<void> {
      await engine().pull(id, await api.sourceOfMachine(id), { signal: cancellationSignal() })
    },
  }
}
