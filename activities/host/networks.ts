import { availableParallelism } from 'node:os'
import { HostsApart, InstanceNotRunning } from '../../drivers/errors.ts'
import { type FoundInstance, type InstanceEngine, isMachine } from '../../drivers/instances.ts'
import { isProcessOf } from '../../drivers/linux/cgroups.ts'
import type { MachineAttachments, MachineLifecycle, MachineNic } from '../../drivers/machines.ts'
import type { AttachedNic, NetworkDriver, NicSpec } from '../../drivers/networks.ts'
import type { HostNetworks, RestoredNic } from '../../lib/network-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeNamedQueues, makeQueue, mapAtOnce } from '../../lib/queue.ts'

interface Parts {
  driver: NetworkDriver
  /** Fetches the wanted networks of this host from the platform. */
  wanted: () => Promise<HostNetworks>
  engine: Pick<InstanceEngine, 'find'>
  log: Logger
}

type HostNic = HostNetworks['nics'][number]

/** A run brings the networks to one state of the platform. */
interface Run {
  /** Resolves when all is done, with the errors: by VPC id, and by id of a path and of what could not be removed. */
  whole: Promise<Map<string, unknown>>
  /** Resolves when this VPC is done. Throws the error with this id: the VPC, or what was to be removed from it. */
  done(vpcId: string, id?: string): Promise<void>
  /** Throws the path's error. */
  pathDone(id: string): Promise<void>
}

/** What was applied: `text` is its description, empty while that is under way and after it has failed. */
interface Applied {
  vpc_id: string
  text: string
}

/** A report may not arrive. What was restored is in all reports of this time, and noted once. */
const toldForMs = 600_000

// Each step runs programs one after another, so more than this would only share the cores.
const stepsAtOnce = 2 * availableParallelism()

/** The VPCs, subnets and NICs of one host. */
export type Networks = ReturnType<typeof makeNetworks>

/**
 * Reconciles a host's networks with the platform. Each run fetches the complete wanted state and changes what differs.
 * Each VPC has a queue of its own, in which older states never follow newer ones, and VPCs take turns: a VPC with
 * thousands of subnets does not delay the start of an instance in another one.
 */
export function makeNetworks({ driver, wanted, engine, log }: Parts) {
  let now: HostNetworks = { version: '', subnets: [], apart: [], nics: [], paths: [] }
  let known: Awaited<ReturnType<NetworkDriver['known']>> = { subnets: [], nics: [], paths: [] }
  const subnets = new Map<string, Applied>()
  const nics = new Map<string, Applied>()
  const paths = new Map<string, string>()
  let seen = new Map<string, FoundInstance>()
  /** By NIC. */
  const restored = new Map<string, RestoredNic>()
  let version: string | null = null
  let runs = 0
  const fetching = makeQueue()
  const inVpc = makeNamedQueues()
  const inPath = makeNamedQueues()
  const slots = makeQueue(stepsAtOnce)
  const inSlot = <T>(vpcId: string, step: () => Promise<T>): Promise<T> => slots(step, undefined, vpcId)
  let next: Promise<Run> | null = null
  let mendNext = false

  /** Calls share the next run if it has not begun. */
  function begin({ mend = false } = {}): Promise<Run> {
    mendNext ||= mend
    next ??= fetching(async () => {
      await Promise.resolve() // an idle queue would begin at once, before `next` is set
      next = null
      const all = mendNext
      mendNext = false
      return run(all)
    })
    return next
  }

  const apply = async (options = {}): Promise<Map<string, unknown>> => (await begin(options)).whole

  /** `all`: also check things that are already recorded as applied. */
  async function run(all: boolean): Promise<Run> {
    version = null
    const number = ++runs
    now = await wanted()
    known = await driver.known()
    const faults = new Map<string, unknown>()
    const attempt = (id: string, work: () => Promise<void>): Promise<void> =>
      work().catch((error: unknown) => void faults.set(id, error))
    // Remove first: the addresses may belong to other instances now.
    const wantedPaths = new Set(now.paths.map(({ id }) => id))
    for (const id of known.paths.filter((one) => !wantedPaths.has(one)))
      await attempt(id, () =>
        inPath(id, () => {
          paths.delete(id)
          return driver.removePath(id)
        }),
      )
    const present = [...known.subnets, ...known.nics, ...subnets.values(), ...nics.values(), ...now.subnets]
    const vpcs = new Map(
      [...new Set(present.map(({ vpc_id }) => vpc_id))].map((id) => [
        id,
        inVpc(id, () => bringVpc(id, all, attempt)),
      ]),
    )
    const vpcOf = new Map(now.subnets.map(({ id, vpc_id }) => [id, vpc_id]))
    const along = new Map(
      now.paths.map(({ id, near, far }) => [
        id,
        attempt(id, async () => {
          const its = [near, far].map(({ subnet_id }) => vpcOf.get(subnet_id) ?? '')
          for (const vpcId of its) await vpcs.get(vpcId)
          await inPath(id, () => inSlot(its.join(), () => applyPath(id, all)))
        }),
      ]),
    )

    async function end(): Promise<Map<string, unknown>> {
      await Promise.all([...vpcs.values(), ...along.values()])
      if (faults.size === 0 && number === runs) version = now.version
      for (const [id, err] of faults) log.warn({ err, id }, 'a network is not in its wanted state')
      return faults
    }
    const fail = (id: string): void => {
      if (faults.has(id)) throw faults.get(id)
    }
    return {
      whole: end(),
      async done(vpcId, id = vpcId) {
        await vpcs.get(vpcId)
        fail(id)
      },
      async pathDone(id) {
        await along.get(id)
        fail(id)
      },
    }
  }

  /** Brings one VPC to the newest state. */
  async function bringVpc(
    vpcId: string,
    all: boolean,
    attempt: (id: string, work: () => Promise<void>) => Promise<void>,
  ): Promise<void> {
    const its = now.subnets.filter(({ vpc_id }) => vpc_id === vpcId)
    const ends = now.paths.flatMap(({ near, far }) => [near, far])
    await drop('nics', new Set([...now.nics, ...ends].map(({ id }) => id)))
    await drop('subnets', new Set(its.map(({ id }) => id)))
    await attempt(vpcId, async () => {
      for (const subnet of its) {
        const text = JSON.stringify(subnet)
        if (!all && subnets.get(subnet.id)?.text === text) continue
        subnets.set(subnet.id, { vpc_id: vpcId, text: '' })
        await inSlot(vpcId, () => driver.applySubnet(subnet))
        subnets.set(subnet.id, { vpc_id: vpcId, text })
      }
      // What is here works on. Nothing new starts in a VPC that would be two.
      if (now.apart.includes(vpcId)) throw new HostsApart()
    })
    await reattach(vpcId, all)

    async function drop(kind: 'nics' | 'subnets', kept: Set<string>): Promise<void> {
      const applied = kind === 'nics' ? nics : subnets
      const here = [...known[kind], ...[...applied].map(([id, { vpc_id }]) => ({ id, vpc_id }))]
      const ids = here.filter(({ id, vpc_id }) => vpc_id === vpcId && !kept.has(id)).map(({ id }) => id)
      for (const id of new Set(ids))
        await attempt(id, async () => {
          applied.set(id, { vpc_id: vpcId, text: '' })
          await inSlot(vpcId, () => (kind === 'nics' ? driver.detachNic(id) : driver.removeSubnet(id)))
          applied.delete(id)
        })
    }
  }

  /** Applies the path, unless a newer state has none. */
  async function applyPath(id: string, all: boolean): Promise<void> {
    const path = now.paths.find((one) => one.id === id)
    const text = JSON.stringify(path)
    if (!path || (!all && paths.get(id) === text)) return
    paths.delete(id)
    await driver.applyPath(path)
    paths.set(id, text)
  }

  /** Attaches the NICs that running instances have in this VPC. Failures are retried at the next report. */
  async function reattach(vpcId: string, all: boolean): Promise<void> {
    const its = now.nics.filter(({ vpc_id }) => vpc_id === vpcId)
    for (const [instanceId, ofInstance] of Map.groupBy(its, ({ instance_id }) => instance_id)) {
      try {
        const found = seen.get(instanceId)
        if (!found) continue
        const { pid, engine_id } = found
        if (isMachine(found)) await attachAll(ofInstance, 'tap', all)
        // The pid may have been reused by another process.
        else if (pid !== null && (await isProcessOf(pid, engine_id)))
          await attachAll(ofInstance, { pid }, all)
      } catch (err) {
        log.warn({ err, instance_id: instanceId }, 'NICs are not attached')
      }
    }
  }

  async function attachAll(wantedNics: HostNic[], into: NicSpec['into'], all: boolean): Promise<void> {
    for (const nic of wantedNics) {
      const text = JSON.stringify(specOf(nic, into))
      if (!all && nics.get(nic.id)?.text === text) continue
      await attach(nic, into)
    }
  }

  async function attach(nic: HostNic, into: NicSpec['into']): Promise<AttachedNic> {
    const spec = specOf(nic, into)
    const { id, instance_id, vpc_id } = nic
    nics.set(nic.id, { vpc_id, text: '' })
    const attached = await inSlot(vpc_id, () => driver.attachNic(spec))
    nics.set(nic.id, { vpc_id, text: JSON.stringify(spec) })
    if (attached.restored)
      restored.set(id, { kind: 'nic', id, state: 'restored', instance_id, at: new Date().toISOString() })
    return attached
  }

  const ofInstance = (id: string): HostNic[] => now.nics.filter(({ instance_id }) => instance_id === id)

  /** Applies the networks. Throws the error of a VPC of this instance, and does not wait for others. */
  async function ready(instanceId: string): Promise<void> {
    const begun = await begin()
    for (const { vpc_id } of ofInstance(instanceId)) await begun.done(vpc_id)
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
        const { namespace, device } = await attach(nic, 'tap')
        taps.push({ id, mac_address, ip_address, default_route, ...at, namespace, device })
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
      const begun = await begin()
      const vpcId = nics.get(nicId)?.vpc_id ?? known.nics.find(({ id }) => id === nicId)?.vpc_id
      if (vpcId !== undefined) await begun.done(vpcId, nicId)
    },

    /** Applies the networks. Throws the error of this path. */
    pathReady: async (id: string): Promise<void> => (await begin()).pathDone(id),

    /** Which paths of this host reach their targets. */
    lookAlongPaths: (): Promise<{ id: string; reaches: boolean }[]> =>
      mapAtOnce(now.paths, stepsAtOnce, async ({ id }) => ({ id, reaches: await driver.pathReaches(id) })),

    /** NICs that running instances had lost, and have again since some minutes at most. */
    restored(): RestoredNic[] {
      for (const { id, at } of restored.values())
        if (Date.now() - Date.parse(at) > toldForMs) restored.delete(id)
      return [...restored.values()]
    },

    /** Takes the instances that run here, and moves NICs to the namespaces of restarted ones. */
    async look(found: FoundInstance[]): Promise<void> {
      seen = new Map(found.map((instance) => [instance.id, instance]))
      const vpcs = [...new Set(now.nics.map(({ vpc_id }) => vpc_id))]
      await Promise.all(vpcs.map((id) => inVpc(id, () => reattach(id, false))))
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
