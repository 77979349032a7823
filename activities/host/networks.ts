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
  /** What is to be here, as the platform says now. */
  wanted: () => Promise<HostNetworks>
  engine: Pick<InstanceEngine, 'find'>
  log: Logger
}

type HostNic = HostNetworks['nics'][number]

// Each is programs one after the other; more of them than processors would only take turns.
const vpcsAtOnce = 2 * availableParallelism()

/** The VPCs, subnets and NICs of one host. */
export type Networks = ReturnType<typeof makeNetworks>

/**
 * Keeps a host's networks as the platform wants them. Each time the whole is asked for and what differs is changed; one time
 * after the other, so that what was asked for later is never overtaken.
 */
export function makeNetworks({ driver, wanted, engine, log }: Parts) {
  let now: HostNetworks = { version: '', subnets: [], nics: [] }
  /** Of what is here, as it was asked for: a subnet's description, and into which process's namespace a NIC went. */
  const done = new Map<string, string>()
  let seen = new Map<string, FoundInstance>()
  let version: string | null = null
  const inTurn = makeQueue()
  let next: Promise<Map<string, unknown>> | null = null
  let mendNext = false

  /** Resolves with what went wrong, by VPC, and by what should have gone. A call joins the next time, if that has not begun to ask. */
  function apply({ mend = false } = {}): Promise<Map<string, unknown>> {
    mendNext ||= mend
    next ??= inTurn(async () => {
      await Promise.resolve() // an idle queue begins at once, and `next` is not set yet
      next = null
      const all = mendNext
      mendNext = false
      return bring(all)
    })
    return next
  }

  /** `all`: what is here as it should be by our account is looked at too. */
  async function bring(all: boolean): Promise<Map<string, unknown>> {
    version = null
    now = await wanted()
    const faults = new Map<string, unknown>()
    const known = await driver.known()
    const nics = new Set(now.nics.map(({ id }) => id))
    const subnets = new Set(now.subnets.map(({ id }) => id))
    // First what goes: its addresses may be somebody else's by now.
    const drop = async (id: string, work: () => Promise<void>) => {
      done.delete(id)
      await work().catch((error: unknown) => faults.set(id, error))
    }
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
    if (faults.size === 0) version = now.version
    for (const [id, err] of faults) log.warn({ err, id }, 'a network is not as it should be')
    return faults
  }

  /** The NICs of what runs here. One that fails is tried again with the next report. */
  async function reattach(all: boolean): Promise<void> {
    for (const [instanceId, nics] of Map.groupBy(now.nics, ({ instance_id }) => instance_id)) {
      try {
        const found = seen.get(instanceId)
        if (!found) continue
        const { pid, engine_id } = found
        if (isMachine(found)) await attachAll(nics, 'tap', all)
        // By now the number may be that of another's process.
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

  /** Throws what went wrong with the VPC of this instance. */
  async function ready(instanceId: string): Promise<void> {
    const faults = await apply()
    for (const { vpc_id } of ofInstance(instanceId)) if (faults.has(vpc_id)) throw faults.get(vpc_id)
  }

  return {
    apply,
    /** Of what is here; null while that is not known. */
    version: (): string | null => version,
    ready,

    /** Into the namespace in which an instance is about to start. After `ready`. */
    attachTo: (instanceId: string, pid: number): Promise<void> =>
      attachAll(ofInstance(instanceId), { pid }, false),

    /** The taps of a machine, made where they are not there. After `ready`. */
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

    /** Live: all NICs that the instance is to have. Throws InstanceNotRunning, and as the driver does. */
    async attachLive(instanceId: string): Promise<void> {
      await ready(instanceId)
      const { pid = null } = (await engine.find(instanceId)) ?? {}
      if (pid === null) throw new InstanceNotRunning(instanceId)
      await attachAll(ofInstance(instanceId), { pid }, false)
    },

    /** Takes the NIC away, which is wanted no more. */
    async detach(nicId: string): Promise<void> {
      const faults = await apply()
      if (faults.has(nicId)) throw faults.get(nicId)
    },

    /** What runs here now: NICs of what has started in another namespace go there. */
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

/** What a host does with networks. The faults are drivers/errors.ts. */
export const makeNetworksOnHost = ({ networks, machines }: ActivityParts) => ({
  /** Brings the host to what is wanted now. What cannot be is tried again by the host itself. */
  async applyNetworksOnHost(): Promise<void> {
    await networks.apply()
  },

  /** Brings a running instance's NICs to what is wanted now. */
  async attachNicsOnHost(instanceId: string): Promise<void> {
    if (!(await machines?.find(instanceId))) return networks.attachLive(instanceId)
    await networks.ready(instanceId)
    for (const tap of await networks.tapsOf(instanceId)) await machines?.attachNic(instanceId, tap)
  },

  /** Takes a NIC out of a machine. Its tap is there until it is detached. */
  unplugNicOnHost: async (instanceId: string, nicId: string): Promise<void> =>
    machines?.detachNic(instanceId, nicId),

  detachNicOnHost: (nicId: string): Promise<void> => networks.detach(nicId),
})
