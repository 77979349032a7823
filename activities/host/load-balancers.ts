import { cancellationSignal } from '@temporalio/activity'
import { EngineUnavailable, HostNotEquipped } from '../../drivers/errors.ts'
import type { MemberNamespaces } from '../../drivers/linux/member-namespaces.ts'
import type {
  LoadBalancerEngine,
  LoadBalancerState,
  RouteTargets,
  UnreachedTarget,
} from '../../drivers/load-balancers.ts'
import type { HostLoadBalancer, HostLoadBalancers } from '../../lib/load-balancer-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeQueue } from '../../lib/queue.ts'
import type { Networks } from './networks.ts'

// Several intervals between checks, where anybody waits for one.
const recheckedWithinMs = 10_000

interface Parts {
  engine: LoadBalancerEngine
  namespaces: MemberNamespaces
  networks: Pick<Networks, 'ready' | 'attachInto'>
  /** Fetches the wanted load balancers of this host from the platform. */
  wanted: () => Promise<HostLoadBalancers>
  /** Called when the state of one may have changed. */
  onChange: (id: string) => void
  log: Logger
}

/** The load balancers of one host. */
export type LoadBalancers = ReturnType<typeof makeLoadBalancers>

/**
 * Brings a host's load balancers to the platform's records. Each run fetches the complete wanted state and changes what
 * differs. Runs go one after another, so an older state never overwrites a newer one.
 */
export function makeLoadBalancers({ engine, namespaces, networks, wanted, onChange, log }: Parts) {
  /** The description that was applied last. */
  const done = new Map<string, string>()
  /** The namespace of each whose NIC is attached. */
  const attached = new Map<string, string>()
  let version: string | null = null
  const inTurn = makeQueue()
  let next: Promise<Map<string, unknown>> | null = null
  let mendNext = false

  /** Resolves with the errors, by id. Calls share the next run if it has not begun. */
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

  /** `all`: also check those that are already recorded as applied. */
  async function bring(all: boolean): Promise<Map<string, unknown>> {
    version = null
    const now = await wanted()
    const faults = new Map<string, unknown>()
    const ids = new Set(now.load_balancers.map(({ id }) => id))
    // Remove first: their host ports and addresses may belong to others now.
    const known = [...(await engine.list()).map(({ id }) => id), ...(await namespaces.list())]
    for (const id of new Set(known.filter((one) => !ids.has(one))))
      await removeOne(id).catch((error: unknown) => faults.set(id, error))
    for (const one of now.load_balancers) {
      const text = JSON.stringify(one)
      if (!all && done.get(one.id) === text) continue
      await applyOne(one, all)
        .then(() => done.set(one.id, text))
        .catch((error: unknown) => faults.set(one.id, error))
      onChange(one.id)
    }
    if (faults.size === 0) version = now.version
    for (const [id, err] of faults) log.warn({ err, id }, 'a load balancer is not in its wanted state')
    return faults
  }

  async function applyOne({ replica_id, ...spec }: HostLoadBalancer, all: boolean): Promise<void> {
    done.delete(spec.id)
    let namespace = attached.get(spec.id)
    if (all || namespace === undefined) {
      namespace = await namespaces.make(spec.id)
      await networks.ready(replica_id)
      await networks.attachInto(replica_id, namespace)
      attached.set(spec.id, namespace)
    }
    await engine.apply({ ...spec, namespace })
  }

  async function removeOne(id: string): Promise<void> {
    done.delete(id)
    attached.delete(id)
    await engine.remove(id)
    await namespaces.remove(id)
    onChange(id)
  }

  return {
    apply,
    /** The version applied here; null if unknown. */
    version: (): string | null => version,

    /** Applies all, and returns how this one runs. Throws its error. */
    async run(id: string): Promise<LoadBalancerState> {
      const faults = await apply()
      if (faults.has(id)) throw faults.get(id)
      const found = await engine.find(id)
      if (found?.state !== 'running') throw new EngineUnavailable('The load balancer does not run yet')
      return found
    },

    /**
     * Waits until new checks of its own have found all of these healthy, for some seconds at most. Returns those that were
     * not.
     */
    recheck: (id: string, targets: RouteTargets[]): Promise<UnreachedTarget[]> =>
      engine.recheck(id, targets, recheckedWithinMs, cancellationSignal()),
  }
}

/** Load balancer activities of a host; null if it lacks the engine. Errors are those of drivers/errors.ts. */
export const makeLoadBalancersOnHost = (balancers: LoadBalancers | null) => ({
  /** Applies the wanted load balancers. The host itself retries what fails. */
  async applyLoadBalancersOnHost(): Promise<void> {
    await balancers?.apply()
  },

  /**
   * Applies the wanted load balancers, and returns how this one runs. It waits some seconds until new checks have found
   * healthy the targets that are to be: those run by now, whatever the checks of before have said. Returns the targets that
   * were not found healthy.
   */
  async runLoadBalancerOnHost(
    id: string,
    toBeHealthy: RouteTargets | RouteTargets[] | null = null,
  ): Promise<Pick<LoadBalancerState, 'ports' | 'refused'> & { unreached: UnreachedTarget[] }> {
    if (!balancers) throw new HostNotEquipped('the program haproxy')
    const { ports, refused } = await balancers.run(id)
    const targets = [toBeHealthy ?? []].flat()
    return { ports, refused, unreached: targets.length ? await balancers.recheck(id, targets) : [] }
  },
})
