import { ApplicationFailure } from '@temporalio/activity'
import type { RouteTargets } from '../../drivers/load-balancers.ts'
import type { AwaitedContainer } from '../../lib/deploy-protocol.ts'
import { rowsOf } from '../../models/deploy/compose/plan.ts'
import { longestGraceSec } from '../../models/deploy/compose/containers.ts'
import { keepVolumesOfService } from '../../models/deploy/kept-service-volumes.ts'
import { keepSettled } from '../../models/deploy/service-acceptance.ts'
import { placedAs, placeService } from '../../models/deploy/service-placement.ts'
import { routeService } from '../../models/deploy/service-routes.ts'
import {
  buildsOfPlan,
  findService,
  openRevision,
  sealRevision,
  Service,
  type ServiceDocument,
  type ServiceRevision,
} from '../../models/deploy/services.ts'
import { forgetStorages, storagesOfService, volumeOf } from '../../models/deploy/storages.ts'
import { volumeOfService } from '../../models/deploy/services.ts'
import { forgetTasks } from '../../models/deploy/task-runs.ts'
import { transaction } from '../../models/database.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { permanently } from '../failures.ts'
import { balancersOf } from './deployments.ts'
import { endWithinSec, placeOfVolumes, type PlaceOfVolumes, type WantedVolumes } from './volumes.ts'

/** How a service is brought to its next revision. */
export interface ServicePlan {
  deploy_server_id: string
  within_sec: number
  /** Containers in the order of their start, those of a row together. */
  rows: AwaitedContainer[][]
  /** Whether its containers run. */
  runs: boolean
}

/** How requests reach a service. */
export interface RoutedService {
  lb_id: string
  targets: RouteTargets[]
  host_ids: string[]
}

/** Activities of services: short reads and writes of MongoDB. */
export const makeServiceActivities = ({ domain }: { domain: string }) => ({
  /** Places the containers of the next revision. Throws `no_room` and `worker_away`. */
  async planService(id: string): Promise<ServicePlan> {
    const service = await permanently(async () => placeService(await theService(id)))
    const { plan } = await nextOf(service)
    const ids = new Map(service.containers.map(({ name, service_id }) => [name, service_id]))
    const rows = (rowsOf(plan.containers) ?? []).map((row) =>
      row.map((name) => ({ name, service_id: ids.get(name) ?? '', until: awaitedOf(name, plan) })),
    )
    const { deploy_server_id, within_sec, wanted } = service
    return { deploy_server_id, within_sec, rows, runs: Object.keys(wanted).length > 0 }
  },

  /** Remembers what the service is, to go back to it. */
  async rememberService(id: string): Promise<void> {
    const { former_sealed, revision_sealed, wanted } = await theService(id)
    if (former_sealed === '-')
      await set(id, { former_sealed: revision_sealed, former_wanted: Object.keys(wanted) })
  },

  /**
   * Has these containers run as the next revision says. `restart`: a number of the operation, which starts them anew, also
   * if nothing of them changes.
   */
  async advanceService(id: string, names: string[], restart: number | null): Promise<void> {
    const service = await theService(id)
    const { tenant_id, revision_sealed } = service
    const [now, next] = [await openRevision(tenant_id, revision_sealed), await nextOf(service)]
    const moves = (name: string): boolean => names.includes(name)
    const plan = {
      containers: [
        ...now.plan.containers.filter(({ name }) => !moves(name)),
        ...next.plan.containers.filter(({ name }) => moves(name)),
      ],
      networks: [
        ...next.plan.networks,
        ...now.plan.networks.filter(({ name }) => !next.plan.networks.some((one) => one.name === name)),
      ],
      volumes: next.plan.volumes,
    }
    const wanted = { ...service.wanted }
    for (const name of names) wanted[name] = restart ?? wanted[name] ?? 0
    await set(id, { revision_sealed: await sealRevision(tenant_id, { ...now, plan }), wanted })
  },

  /** The service is what the next revision says: containers that it leaves out are to end. */
  async settleService(id: string): Promise<void> {
    const service = await theService(id)
    const { tenant_id, operation_id } = service
    const next = await nextOf(service)
    const names = new Set(next.plan.containers.map(({ name }) => name))
    const wanted = Object.fromEntries(Object.entries(service.wanted).filter(([name]) => names.has(name)))
    const volumes = [...new Set([...service.volumes, ...next.plan.volumes])]
    const placed = await placedAs(service, next.plan)
    const settled = { next_sealed: '-', builds: buildsOfPlan(next.plan) }
    const revision_sealed = await sealRevision(tenant_id, next)
    await transaction(async () => {
      await set(id, {
        ...settled,
        revision_sealed,
        former_sealed: '-',
        containers: placed.map((one) => ({ ...one, seen_at: new Date(), health: null, ended: null })),
        wanted,
        volumes,
      })
      if (operation_id !== null) await keepSettled(operation_id, settled)
    }, id)
  },

  /** Goes back to what the service was. Null: it was not changed yet. Else what runs again then. */
  async takeServiceBack(
    id: string,
  ): Promise<{ deploy_server_id: string; within_sec: number; awaited: AwaitedContainer[] } | null> {
    const service = await theService(id)
    const { tenant_id, former_sealed, former_wanted, deploy_server_id, within_sec } = service
    if (former_sealed === '-') return null
    const { plan } = await openRevision(tenant_id, former_sealed)
    const names = new Set(plan.containers.map(({ name }) => name))
    const containers = await placedAs(service, plan)
    // The change may have started containers that did not run.
    const ran = new Set(former_wanted ?? names)
    const wanted = Object.fromEntries(
      Object.entries(service.wanted).filter(([name]) => names.has(name) && ran.has(name)),
    )
    await set(id, { revision_sealed: former_sealed, containers, wanted })
    const awaited = containers
      .filter(({ name }) => name in wanted)
      .map(({ name, service_id, is_job }): AwaitedContainer => {
        const until = is_job ? 'completed' : 'running'
        return { name, service_id, until }
      })
    return { deploy_server_id, within_sec, awaited }
  },

  /** The change is taken back. */
  async forgetFormer(id: string): Promise<void> {
    await set(id, { former_sealed: '-' })
  },

  /** No container of the service is to run. Where those that do are. */
  async haltService(id: string): Promise<{ deploy_server_id: string; place: PlaceOfVolumes | null }> {
    await set(id, { wanted: {} })
    const service = await theService(id)
    return { deploy_server_id: service.deploy_server_id, place: await placeOfVolumes(service) }
  },

  /** Has the load balancer lead to the containers that are to run. Null without one. */
  async routeService(id: string): Promise<RoutedService | null> {
    const service = await findService(id)
    const balanced = service && (await permanently(() => routeService(service, domain)))
    return balanced && { ...balanced, host_ids: await balancersOf(balanced.lb_id) }
  },

  /** The volumes that stay, and where they are. Null: none can be removed. */
  async volumesOfService(id: string, keeps: 'all' | 'none'): Promise<WantedVolumes | null> {
    const service = await theService(id)
    if (keeps === 'all' && service.has_unknown_volumes) return null
    const place = await placeOfVolumes(service)
    if (!place) return null
    const storages = keeps === 'none' ? [] : await storagesOfService(service.tenant_id, id)
    const own = keeps === 'none' ? [] : service.volumes.map((name) => volumeOfService(id, name))
    const names = [...own, ...storages.map((one) => volumeOf(one._id))]
    return { ...place, names, within_sec: endWithinSec(longestGraceSec, keeps === 'all') }
  },

  /** Removes what else there is of a service. Volumes that are kept wait for the next service of its name. */
  async forgetService(id: string, keepsVolumes: boolean): Promise<void> {
    const service = await findService(id)
    if (!service) return
    const { tenant_id, volumes, has_unknown_volumes, volume_node } = service
    const storages = await storagesOfService(tenant_id, id)
    const hasAny = volumes.length > 0 || has_unknown_volumes || storages.length > 0
    if (keepsVolumes && volume_node !== null && hasAny)
      await keepVolumesOfService(service, (await nextOf(service)).generated)
    else await forgetStorages(tenant_id, { owner_id: id })
    await forgetTasks(tenant_id, { app_id: id })
  },
})

export type ServiceActivities = ReturnType<typeof makeServiceActivities>

const set = (_id: string, fields: Partial<ServiceDocument>): Promise<unknown> =>
  Service.updateOne({ _id }, { $set: fields }).setOptions(everyTenant).exec()

async function theService(id: string): Promise<ServiceDocument> {
  const service = await findService(id)
  if (!service) throw ApplicationFailure.nonRetryable('The service no longer exists', 'not_found')
  return service
}

/** What the service is to become; without a change, what it is. */
const nextOf = ({ tenant_id, next_sealed, revision_sealed }: ServiceDocument): Promise<ServiceRevision> =>
  openRevision(tenant_id, next_sealed === '-' ? revision_sealed : next_sealed)

/** What a row waits for: the most that a container of a later row wants of it, and in the end that all run. */
function awaitedOf(name: string, { containers }: ServiceRevision['plan']): AwaitedContainer['until'] {
  const wants = containers.flatMap(({ depends_on }) => depends_on.filter((one) => one.name === name))
  const own = containers.find((one) => one.name === name)
  const asks = (condition: string): boolean => wants.some((one) => one.condition === condition)
  if (own?.restart === 'no' || asks('service_completed_successfully')) return 'completed'
  return asks('service_healthy') || wants.length === 0 ? 'running' : 'begun'
}
