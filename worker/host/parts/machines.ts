import { ioLimits } from '../io-limits.ts'
import { setTimeout as delay } from 'node:timers/promises'
import { makeMachinesOnHost } from '../../../activities/host/machines.ts'
import type { Settings } from '../../../config.ts'
import { missingForMachines, missingForVms } from '../../../drivers/system/equipment.ts'
import type { HostImages } from '../../../drivers/docker/host-images.ts'
import type { LogFiles } from '../../../drivers/log-files.ts'
import type { MachineEngine, MachineMaintenance, MachineTransfers } from '../../../drivers/machines.ts'
import type { HostPorts } from '../../../drivers/system/host-ports.ts'
import { openQemuMachines } from '../../../drivers/qemu/engine.ts'
import type { MachinesOfHost } from '../../../lib/host-protocol.ts'
import type { Logger } from '../../../lib/log.ts'
import type { ObservedInstances } from '../instances.ts'
import type { HostPart } from '../part.ts'

const againAfterMs = 60_000
const mendEveryMs = 10_000
const tidyEveryMs = 3_600_000
const unusedMs = 24 * 3_600_000

export type Machines = MachineEngine & MachineTransfers & { files: LogFiles }

interface Parts {
  hostId: string
  /** Where other hosts fetch machines. */
  serveOn: { address: string; ports: [from: number, to: number] }
  ports: HostPorts
  pulls: Pick<HostImages, 'pull'>
  logs: { backlogMib: number; beforeRemoval: (id: string) => Promise<void> } | null
  log: Logger
}

/** Opens this host's microVMs and VMs and connects to running ones. Null if the host lacks what they need. */
export async function openMachines(
  settings: Settings<'host'>,
  { hostId, serveOn, ports, pulls, logs, log }: Parts,
): Promise<Machines | null> {
  const lacking = await missingForMachines(settings.KEELSON_HOST_GUEST)
  if (lacking.length) {
    log.warn({ lacking }, 'no microVMs on this host: see docs/operators.md')
    return null
  }
  const lackingForVms = await missingForVms(settings.KEELSON_HOST_VM_BUILD)
  if (lackingForVms.length) log.warn({ lacking: lackingForVms }, 'no VMs on this host: see docs/operators.md')
  return openQemuMachines({
    hostId,
    serveOn,
    ports,
    pulls,
    hostNamespace: settings.KEELSON_HOST_NAMESPACE ?? null,
    dockerHost: settings.KEELSON_DOCKER_HOST,
    folder: settings.KEELSON_HOST_MACHINES,
    run: settings.KEELSON_HOST_MACHINES_RUN,
    guest: settings.KEELSON_HOST_GUEST,
    imagesLeaveBytes: settings.KEELSON_IMAGES_FREE_GIB * 1024 ** 3,
    plugs: settings.KEELSON_HOST_DISKS_RUN,
    io: await ioLimits(settings, settings.KEELSON_HOST_MACHINES),
    vmBuild: lackingForVms.length ? null : settings.KEELSON_HOST_VM_BUILD,
    ...(logs ? { logBacklogMib: logs.backlogMib, beforeRemoval: logs.beforeRemoval } : {}),
  })
}

/** Finds the machine engine in the background, because it boots a guest. Returns null until then. */
export function lookIntoMachines(
  machines: MachineMaintenance | null,
  log: Logger,
  signal: AbortSignal,
): () => MachinesOfHost | null {
  let known: MachinesOfHost | null = null
  async function look(): Promise<void> {
    if (!machines) return
    const engine = machines
    while (!known && !signal.aborted) {
      try {
        const { name, version, accelerator, kernel } = await engine.describe()
        known = { name, version, accelerator, kernel }
      } catch (err) {
        log.warn({ err }, 'no microVM boots on this host; trying again')
        await delay(againAfterMs, undefined, { signal }).catch(() => undefined)
      }
    }
  }
  void look()
  return () => known
}

type PartOf = Parameters<typeof makeMachinesOnHost>[0] & {
  machines: Machines | null
  instances: ObservedInstances | null
  log: Logger
}

export const machinesPart = ({ machines, instances, log, ...of }: PartOf): HostPart => ({
  name: 'machines',
  kinds: ['microvm', 'vm'],
  activities: makeMachinesOnHost({ machines, ...of }),
  ...instances,
  keep: async (signal) => machines && keepMachines(machines, log, signal),
  close: async () => machines?.close(),
})

/** Restarts helper processes of machines and removes unused images, until aborted. */
async function keepMachines(machines: MachineMaintenance, log: Logger, signal: AbortSignal): Promise<void> {
  let tidiedAt = 0
  while (!signal.aborted) {
    await machines.mend().catch((err: unknown) => log.warn({ err }, 'machines were not mended; trying again'))
    if (Date.now() - tidiedAt > tidyEveryMs) {
      tidiedAt = Date.now()
      await machines
        .removeUnusedImages(unusedMs)
        .then((images) => images.length > 0 && log.info({ images }, 'removed images that nobody used'))
        .catch((err: unknown) => log.warn({ err }, 'unused images were not removed'))
    }
    await delay(mendEveryMs, undefined, { signal }).catch(() => undefined)
  }
}
