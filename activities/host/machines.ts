import { availableParallelism } from 'node:os'
import { cancellationSignal, heartbeat } from '@temporalio/activity'
import type { RegistryLogin } from '../../drivers/containers.ts'
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
import { turn } from './turns.ts'

/** API calls of a host about its machines. */
export interface MachineApi {
  /** Fetched when the machine starts, so that secrets never pass through Temporal. */
  secretsOf: (
    instanceId: string,
  ) => Promise<{ config_vars: Record<string, string>; user_data: string | null }>
  /** The tenant's login at the registry of the instance's image. */
  registryLogin: (instanceId: string) => Promise<RegistryLogin | null>
  /** The key of a move goes from host to API to host, so it is in no workflow history. */
  offerMachine: (instanceId: string, source: MachineSource) => Promise<void>
  sourceOfMachine: (instanceId: string) => Promise<MachineSource>
}

interface Parts {
  /** Null on a host without machines. */
  machines: (MachineLifecycle & MachineTransfers) | null
  api: MachineApi
  hosted: Pick<HostedDisks, 'socketsFor' | 'detachAll'>
  networks: Pick<Networks, 'ready' | 'tapsOf'>
}

/** The platform's spec, without the fields that only this host knows. */
type Ordered = Omit<MachineSpec, 'nics' | 'disks' | 'user_data'> & { disks: Omit<MachineDisk, 'socket'>[] }

// A booting machine uses a core for a second or two, more without KVM.
const startsAtOnce = availableParallelism()

/**
 * microVM and VM activities of a host. This worker or the next may repeat each step: the engine checks the present
 * state before it acts. Errors are those of drivers/errors.ts.
 */
export function makeMachinesOnHost({ machines, api, hosted, networks }: Parts) {
  const inSlot = makeQueue(startsAtOnce, { newcomers: startsAtOnce })

  function engine(): MachineLifecycle & MachineTransfers {
    if (!machines) throw new HostNotEquipped('support for microVMs and VMs')
    return machines
  }

  const prepare = (
    kind: MachineKind,
    image: string,
    digest: string | null,
    id: string,
  ): Promise<ReadyImage> =>
    engine().prepare(kind, image, {
      digest,
      login: () => api.registryLogin(id),
      onProgress: heartbeat,
      signal: cancellationSignal(),
    })

  /** Adds taps and disk sockets to the spec, and makes them if they are missing. */
  async function whole({ disks, ...spec }: Ordered, operationId: string): Promise<MachineSpec> {
    if (spec.network) await networks.ready(spec.id)
    return {
      ...spec,
      nics: spec.network ? await networks.tapsOf(spec.id) : [],
      disks: await hosted.socketsFor(spec.id, disks, operationId),
    }
  }

  /**
   * Prepares image, secrets, NICs and disks, then starts the machine in its turn. Can be cancelled only until the
   * start.
   */
  async function starting(
    ordered: Ordered,
    operationId: string,
    start: (spec: MachineSpec, configVars: Record<string, string>) => Promise<FoundMachine>,
  ): Promise<FoundMachine> {
    const [{ image_digest }, { config_vars, user_data }] = await Promise.all([
      prepare(ordered.kind, ordered.image, ordered.image_digest, ordered.id),
      api.secretsOf(ordered.id),
    ])
    return inSlot(
      async () => {
        const spec = await whole({ ...ordered, image_digest }, operationId)
        return start({ ...spec, user_data }, config_vars)
      },
      ...turn(),
    )
  }

  return {
    /** Makes the image present for a machine. With a digest, pulls exactly those bytes. */
    prepareMachineOnHost: prepare,

    /** Prepares the image and starts the machine, or finds it running. */
    runMachineOnHost: (ordered: Ordered, operationId: string): Promise<FoundMachine> =>
      starting(ordered, operationId, (spec, vars) => engine().run(spec, vars, operationId)),

    rebootMachineOnHost: (ordered: Ordered, operationId: string, graceSec: number): Promise<FoundMachine> =>
      starting(ordered, operationId, (spec, vars) => engine().reboot(spec, vars, operationId, graceSec)),

    /** Makes a machine from a suspended one. */
    forkMachineOnHost: (fromId: string, ordered: Ordered, operationId: string): Promise<FoundMachine> =>
      starting(ordered, operationId, (spec, vars) => engine().fork(fromId, spec, vars, operationId)),

    suspendMachineOnHost: (id: string): Promise<FoundMachine> => engine().suspend(id),

    resumeMachineOnHost: (ordered: Ordered, operationId: string): Promise<FoundMachine> =>
      inSlot(async () => engine().resume(await whole(ordered, operationId)), ...turn()),

    /**
     * Stops the machine, detaches its disks and returns its exit code; null if it is gone. A cancelled call stops
     * waiting; the machine still ends.
     */
    async stopMachineOnHost(id: string, graceSec: number, diskIds: string[] = []): Promise<number | null> {
      await machines?.stop(id, graceSec, cancellationSignal())
      await hosted.detachAll(diskIds)
      return (await machines?.find(id))?.exit_code ?? null
    },

    /** Applies only the size and the restart policy; NICs and disks do not change. */
    async resizeMachineOnHost(id: string, of: Parameters<MachineLifecycle['resize']>[1]): Promise<void> {
      const { cpu_cores, memory_mib, restart_policy } = of
      await engine().resize(id, { cpu_cores, memory_mib, restart_policy })
    },

    /**
     * Removes the machine and everything it left on this host. Archives its output first, unless `discard` is set.
     * Succeeds if there is no machine.
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

    /** Lets another host read a machine that is not running for `seconds`, and sends the API the source. */
    async serveMachineOnHost(id: string, seconds: number): Promise<void> {
      await api.offerMachine(id, await engine().serve(id, seconds, cancellationSignal()))
    },

    stopServingMachineOnHost: async (id: string): Promise<void> => machines?.stopServing(id),

    /** Copies the machine from the host that serves it. A cancelled call leaves nothing behind. */
    async pullMachineOnHost(id: string): Promise<void> {
      await engine().pull(id, await api.sourceOfMachine(id), { signal: cancellationSignal() })
    },
  }
}
