import { availableParallelism } from 'node:os'
import { InstanceNotRunning } from '../../drivers/errors.ts'
import { type FoundInstance, type InstanceEngine, isMachine } from '../../drivers/instances.ts'
import { isProcessOf } from '../../drivers/linux/cgroups.ts'
import type { MachineAttachments, MachineLifecycle, MachineNic } from '../../drivers/machines.ts'
import type { AttachedNic, NetworkDriver, NicSpec } from '../../drivers/networks.ts'
import type { HostNetworks } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeQueue, mapAtOnce } from '../../lib/queue.ts'

interface Parts {
  driver: NetworkDriver
  /** Fetches the wanted networks of this host from the platform. */
  wanted: () => Promise<HostNetworks>
  engine: Pick<InstanceEngine, 'find'>
  log: Logger
}

type HostNic = HostNetworks['nics'][number]

// Each VPC runs programs one after another, so more than this would only share the cores.
const vpcsAtOnce = 2 * availableParallelism()

/** The VPCs, subnets and NICs of one host. */
export type Networks = ReturnType<typeof makeNetworks>

/**
 * Reconciles a host's networks with the platform. Each run fetches the complete wanted state and changes what differs.
 * Runs go one after another, so an older state never overwrites a newer one.
 */
export function makeNetworks({ driver, wanted, engine, log }: Parts) {
  let now: HostNetworks = { version: '', subnets: [], nics: [], paths: [] }
  /** What was applied here: the descriptions of each subnet and path, and the namespace's process of each NIC. */
  const done = new Map<string, string>()
  let seen = new Map<string, FoundInstance>()
  let version: string | null = null
  const inTurn = makeQueue()
  let next: Promise<Map<string, unknown>> | null = null
  let mendNext = false

  /**
   * Resolves with the errors, by VPC id and by id of what could not be removed. Calls share the next run if it has not
   * begun.
   */
  function apply({ mend = false } = {}): Promise<Map<string, unknown>> {
    mendNext ||= mend
    next ??= inTurn(async () => {
      await Promise.resolve() // an idle queue would begin at once, before `next` is set
      next = null
      const all = mendNext
      mendNext = false
      return bring(all)
    })
    return next
  }

  /** `all`: also check things that are already recorded as applied. */
  async function bring(all: boolean): Promise<Map<string, unknown>> {
    version = null
    now = await wanted()
    const faults = new Map<string, unknown>()
    const known = await driver.known()
    const paths = new Set(now.paths.map(({ id }) => id))
    const ends = now.paths.flatMap(({ near, far }) => [near, far])
    const nics = new Set([...now.nics, ...ends].map(({ id }) => id))
    const subnets = new Set(now.subnets.map(({ id }) => id))
    // Remove first: the addresses may belong to other instances now.
    const drop = async (id: string, work: () => Promise<void>) => {
      done.delete(id)
      await work().catch((error: unknown) => faults.set(id, error))
    }
    for (const id of known.paths.filter((one) => !paths.has(one))) await drop(id, () => driver.removePath(id))
    for (const id of known.nics.filter((one) => !nics.has(one))) await drop(id, () => driver.detachNic(id))
    for (const id of known.subnets.filter((one) => !subnets.has(one)))
      await drop(id, () => driver.removeSubnet(id))

    const vpcs = Map.groupBy(now.subnets, ({ vpc_id }) => vpc_id)
    const applyVpc = async (vpcId: string, its: HostNetworks['subnets']): Promise<void> => {
      try {
        for (const subnet of its) {
          const text = JSON.stringify(subnet)
          if (!all && done.get(subnet.id) === text) continue
          done.delete(subnet.id)
          await driver.applySubnet(subnet)
          done.set(subnet.id, text)
        }
      } catch (error) {
        faults.set(vpcId, error)
      }
    }
    await mapAtOnce([...vpcs], vpcsAtOnce, ([vpcId, its]) => applyVpc(vpcId, its))
    await reattach(all)
    for (const path of now.paths)
      await applyPath(path, all).catch((error: unknown) => faults.set(path.id, error))
    if (faults.size === 0) version = now.version
    for (const [id, err] of faults) log.warn({ err, id }, 'a network is not as it should be')
    return faults
  }

  async function applyPath(path: HostNetworks['paths'][number], all: boolean): Promise<void> {
    const text = JSON.stringify(path)
    if (!all && done.get(path.id) === text) return
    done.delete(path.id)
    await driver.applyPath(path)
    done.set(path.id, text)
  }

  /** Attaches the NICs of running instances. Failures are retried at the next report. */
  async function reattach(all: boolean): Promise<void> {
    for (const [instanceId, nics] of Map.groupBy(now.nics, ({ instance_id }) => instance_id)) {
      try {
        const found = seen.get(instanceId)
        if (!found) continue
        const { pid, engine_id } = found
        if (isMachine(found)) await attachAll(nics, 'tap', all)
        // The pid may have been reused by another process.
        else if (pid !== null && (await isProcessOf(pid, engine_id))) await attachAll(nics, { pid }, all)
      } catch (err) {
        log.warn({ err, instance_id: instanceId }, 'NICs are not attached')
      }
    }
  }

  async function attachAll(nics: HostNic[], into: NicSpec['into'], all: boolean): Promise<void> {
    for (const nic of nics) {
      const text = JSON.stringify(specOf(nic, into))
      if (!all && done.get(nic.id) === text) continue
      await attach(nic, into)
    }
  }

  async function attach(nic: HostNic, into: NicSpec['into']): Promise<AttachedNic> {
    const spec = specOf(nic, into)
    done.delete(nic.id)
    const attached = await driver.attachNic(spec)
    done.set(nic.id, JSON.stringify(spec))
    return attached
  }

  const ofInstance = (id: string): HostNic[] => now.nics.filter(({ instance_id }) => instance_id === id)

  /** Applies the networks. Throws the error of a VPC of this instance. */
  async function ready(instanceId: string): Promise<void> {
    const faults = await apply()
    for (const { vpc_id } of ofInstance(instanceId)) if (faults.has(vpc_id)) throw faults.get(vpc_id)
  }

  return {
    apply,
    /** The version applied here; null if unknown. */
    version: (): string | null => version,
    ready,

    /** Attaches NICs in the namespace of an instance that is about to start. Call after `ready`. */
    attachTo: (instanceId: string, pid: number): Promise<void> =>
      attachAll(ofInstance(instanceId), { pid }, false),

    /** Attaches the NICs of a member to its own namespace, also after that was made again. Call after `ready`. */
    attachInto: (memberId: string, namespace: string): Promise<void> =>
      attachAll(ofInstance(memberId), { namespace }, true),

    /** Returns a machine's taps and makes missing ones. Call after `ready`. */
    async tapsOf(instanceId: string): Promise<MachineNic[]> {
      const taps: MachineNic[] = []
      for (const nic of ofInstance(instanceId)) {
        const subnet = now.subnets.find(({ id }) => id === nic.subnet_id)
        const { id, mac_address, ip_address, default_route } = nic
        const [, length] = subnet?.cidr.split('/') ?? []
        const at = { prefix_length: Number(length), gateway_ip: subnet?.gateway_ip ?? '' }
        taps.push({ id, mac_address, ip_address, default_route, ...at, ...(await attach(nic, 'tap')) })
      }
      return taps
    },

    /** Attaches all NICs of a running instance. Throws InstanceNotRunning, and what the driver throws. */
    async attachLive(instanceId: string): Promise<void> {
      await ready(instanceId)
      const { pid = null } = (await engine.find(instanceId)) ?? {}
      if (pid === null) throw new InstanceNotRunning(instanceId)
      await attachAll(ofInstance(instanceId), { pid }, false)
    },

    /** Removes a NIC that is no longer wanted. */
    async detach(nicId: string): Promise<void> {
      const faults = await apply()
      if (faults.has(nicId)) throw faults.get(nicId)
    },

    /** Applies the networks. Throws the error of this path. */
    async pathReady(id: string): Promise<void> {
      const faults = await apply()
      if (faults.has(id)) throw faults.get(id)
    },

    /** Which paths of this host reach their targets. */
    lookAlongPaths: (): Promise<{ id: string; reaches: boolean }[]> =>
      mapAtOnce(now.paths, vpcsAtOnce, async ({ id }) => ({ id, reaches: await driver.pathReaches(id) })),

    /** Takes the instances that run here, and moves NICs to the namespaces of restarted ones. */
    async look(found: FoundInstance[]): Promise<void> {
      seen = new Map(found.map((instance) => [instance.id, instance]))
      await inTurn(() => reattach(false))
    },
  }
}

const specOf = (
  { id, subnet_id, mac_address, ip_address, default_route }: HostNic,
  into: NicSpec['into'],
): NicSpec => ({ id, subnet_id, mac_address, ip_address, default_route, into })

interface ActivityParts {
  networks: Networks
  machines: (MachineAttachments & Pick<MachineLifecycle, 'find'>) | null
}

/** Network activities of a host. Errors are those of drivers/errors.ts. */
export const makeNetworksOnHost = ({ networks, machines }: ActivityParts) => ({
  /** Applies the wanted networks. The host itself retries what fails. */
  async applyNetworksOnHost(): Promise<void> {
    await networks.apply()
  },

  /** Attaches the wanted NICs of a running instance. */
  async attachNicsOnHost(instanceId: string): Promise<void> {
    if (!(await machines?.find(instanceId))) return networks.attachLive(instanceId)
    await networks.ready(instanceId)
    for (const tap of await networks.tapsOf(instanceId)) await machines?.attachNic(instanceId, tap)
  },

  /** Applies the wanted networks, and throws if this path is not as it should be. Also if it should not be there. */
  applyPathOnHost: (pathId: string): Promise<void> => networks.pathReady(pathId),

  /** Removes a NIC from a machine. Its tap stays until it is detached. */
  unplugNicOnHost: async (instanceId: string, nicId: string): Promise<void> =>
    machines?.detachNic(instanceId, nicId),

  detachNicOnHost: (nicId: string): Promise<void> => networks.detach(nicId),
})
