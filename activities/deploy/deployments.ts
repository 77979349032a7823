import { ApplicationFailure } from '@temporalio/activity'
import type { UnreachedTarget } from '../../drivers/load-balancers.ts'
import { NotFound } from '../../lib/problem.ts'
import type { PlaceOnHost, ServingPlace } from '../../lib/deploy-protocol.ts'
import { noteActivity } from '../../models/activity.ts'
import { Artifact, forgetArtifacts } from '../../models/deploy/artifacts.ts'
import { Build } from '../../models/deploy/builds.ts'
import { forgetBuilds } from '../../models/deploy/old-builds.ts'
import { Application, type ApplicationDocument, findApplication } from '../../models/deploy/applications.ts'
import {
  type Balanced,
  type Rest,
  routeApplication,
  targetsAt,
  weighTargets,
} from '../../models/deploy/application-routes.ts'
import {
  Deployment,
  type DeploymentDocument,
  findDeployments,
  logDeployment,
  type Place,
} from '../../models/deploy/deployments.ts'
import { forgetBackupExecutions } from '../../models/deploy/backup-acceptance.ts'
import { BackupExecution } from '../../models/deploy/backup-executions.ts'
import { forgetBackups } from '../../models/deploy/backups.ts'
import { Database } from '../../models/deploy/databases.ts'
import { Domain } from '../../models/deploy/domains.ts'
import { forgetSubscriptions } from '../../models/deploy/events.ts'
import { KeptVolumes } from '../../models/deploy/kept-volumes.ts'
import { areDeployedOn, onHosts, servingOn } from '../../models/deploy/replicas.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { hostsOfMachines } from '../../models/deploy/machine-places.ts'
import { placeRelease } from '../../models/deploy/places.ts'
import { forgetStorages, mountsOf, volumeOf } from '../../models/deploy/storages.ts'
import { KeptServiceVolumes } from '../../models/deploy/kept-service-volumes.ts'
import { Service } from '../../models/deploy/services.ts'
import { forgetSwarmCopies } from '../../models/deploy/swarm-copies.ts'
import { forgetTasks, TaskRun } from '../../models/deploy/task-runs.ts'
import { endTurn, takeTurn, type Turn } from '../../models/deploy/turns.ts'
import { transaction } from '../../models/database.ts'
import { Route } from '../../models/network/load-balancer-routes.ts'
import { replicasOf } from '../../models/network/load-balancers.ts'
import { Operation } from '../../models/operations.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { answering } from '../compute/answering.ts'
import { permanently } from '../failures.ts'
import { endWithinSec, placeOfVolumes, type WantedVolumes } from './volumes.ts'

/** What a workflow knows of a deployment. */
export interface DeploymentFacts {
  kind: DeploymentDocument['kind']
  app_id: string
  deploy_server_id: string
  /** The deployment that serves now. */
  current_id: string | null
  within_sec: number
  path: string | null
  drain_sec: number
  /** Its image is in the registry of the deploy server. */
  built: boolean
}

/** What an application has on one worker. */
interface ServingOnNode {
  path: string | null
  within_sec: number
  places: ServingPlace[]
  /** Null without a route. */
  routed: Routed | null
}

/** How requests reach an application. */
export interface Routed extends Balanced {
  /** The load balancer's hosts that answer. */
  host_ids: string[]
}

/** A release that was taken back. */
interface TakenBack {
  app_id: string
  /** The deployment that serves. */
  current_id: string | null
  replicas: PlaceOnHost[]
}

/** The machine of the control plane, whose host asks the Swarm. */
interface Manager {
  host_id: string
  machine_id: string
}

/** Activities of deployments: short reads and writes of MongoDB. */
export const makeDeploymentActivities = ({ domain }: { domain: string }) => ({
  takeTurn: (id: string): Promise<Turn> => permanently(() => takeTurn(id)),
  endTurn,

  /** Begins a phase, which its readers see with a line of the log. */
  async beginPhase(id: string, phase: string, line: string): Promise<void> {
    const { modifiedCount } = await Deployment.updateOne(
      { _id: id, 'phases.phase': { $ne: phase } },
      { $push: { phases: { phase, at: new Date() } } },
    ).setOptions(everyTenant)
    if (modifiedCount) await logDeployment(id, line)
  },

  async deploymentFacts(id: string): Promise<DeploymentFacts> {
    const deployment = await theDeployment(id)
    const { current_id } = await theApplication(deployment.app_id)
    const { kind, app_id, deploy_server_id, health_check, stop_grace_sec, built } = deployment
    return {
      kind,
      app_id,
      deploy_server_id,
      current_id,
      within_sec: health_check.within_sec,
      path: health_check.path,
      drain_sec: stop_grace_sec,
      built: built !== null,
    }
  },

  /** Throws `machine_missing` if the control plane is not on a host. One that is being replaced is waited for. */
  async managerOf(deployServerId: string): Promise<Manager> {
    const server = await DeployServer.findById(deployServerId).setOptions(everyTenant).lean()
    const machine_id = server?.nodes.find(({ name }) => name === 'cp')?.machine_id
    const host_id = machine_id && (await hostsOfMachines([machine_id])).get(machine_id)
    if (machine_id && host_id) return { host_id, machine_id }
    if (server?.status === 'replacing') throw new Error('the control plane is being replaced') // tried again
    throw ApplicationFailure.nonRetryable('The deploy server has no control plane', 'machine_missing')
  },

  /** Notes the routes of its load balancer whose targets are not found healthy, in the activity of the deploy server. */
  async noteUnreached(lb_id: string, unreached: UnreachedTarget[]): Promise<void> {
    const server = await DeployServer.findOne({ lb_id }, { tenant_id: 1 }).setOptions(everyTenant).lean()
    if (!server) return
    const { _id: resource_id, tenant_id } = server
    const ids = unreached.map(({ route_id }) => route_id)
    for (const { _id, host_match, listener_port } of await Route.find({
      tenant_id,
      _id: { $in: ids },
    }).lean()) {
      const { reason } = unreached.find(({ route_id }) => route_id === _id) ?? { reason: '' }
      const what = host_match ?? `the port ${listener_port}`
      const message = `The load balancer does not find the target of ${what} healthy: ${reason}`
      const data = { lb_id, route_id: _id }
      await noteActivity({ tenant_id, resource_id, kind: 'target_not_reached', message, data })
    }
  },

  /** Places the replicas, and has their services run. Throws `no_room`. */
  async placeRelease(id: string): Promise<ServingPlace[]> {
    const deployment = await theDeployment(id)
    return toServing(await permanently(() => placeRelease(deployment)))
  },

  /** Has the application's route lead to these deployments. Null if it has no load balancer. */
  async routeTo(appId: string, deploymentIds: string[]): Promise<Routed | null> {
    const application = await findApplication(appId)
    if (!application) return null
    const balanced = await permanently(() => routeApplication(application, deploymentIds, domain)).catch(
      unlessGone,
    )
    return balanced && { ...balanced, host_ids: await balancersOf(balanced.lb_id) }
  },

  /** Weighs the targets of all applications by which workers rest. Null without a load balancer. */
  async weighTargets(deployServerId: string): Promise<(Rest & Routed) | null> {
    const rest = await permanently(() => weighTargets(deployServerId)).catch(unlessGone)
    return rest && { ...rest, targets: null, host_ids: await balancersOf(rest.lb_id) }
  },

  /** From now on this release is the one that serves; with null, none is. */
  async settleRelease(appId: string, current_id: string | null): Promise<void> {
    await Application.updateOne(
      { _id: appId },
      { $set: { current_id, stopped: current_id === null } },
    ).setOptions(everyTenant)
  },

  /** Only the services of these deployments are to run. */
  async wantOnly(appId: string, wanted_ids: string[]): Promise<void> {
    await Application.updateOne({ _id: appId }, { $set: { wanted_ids } }).setOptions(everyTenant)
  },

  /** Takes a release back that does not serve. Its services end with the next `applyServicesOnHost`. */
  async takeReleaseBack(id: string): Promise<TakenBack | null> {
    const deployment = await Deployment.findById(id).setOptions(everyTenant).lean()
    const application = deployment && (await findApplication(deployment.app_id))
    if (!application) return null
    const { _id, current_id } = application
    if (current_id === id) return { app_id: _id, current_id, replicas: [] }
    await Application.updateOne({ _id }, { $pull: { wanted_ids: id } }).setOptions(everyTenant)
    await logDeployment(id, 'taking the release back; the former release, if any, keeps serving')
    return { app_id: _id, current_id, replicas: await onHosts(deployment.places) }
  },

  /** Keeps the last output of a replica that did not serve. */
  async keepOutput(id: string, node: string, lines: string[]): Promise<void> {
    const log = (await Deployment.findById(id, { log: 1 }).setOptions(everyTenant).lean())?.log ?? []
    const title = `the last output of the replica on ${node}:`
    if (lines.length && !log.some(({ line }) => line === title)) await logDeployment(id, title, ...lines)
  },

  /** The volumes that are to stay, and where they are. Null if the application has none. */
  async volumesOf(appId: string, keepsAny: boolean): Promise<WantedVolumes | null> {
    const application = await findApplication(appId)
    const place = application && (await placeOfVolumes(application))
    if (!place) return null
    const wanted = keepsAny ? await findDeployments(application.wanted_ids) : []
    const stored = keepsAny ? await mountsOf(application) : []
    const ids = [...stored, ...wanted.flatMap(({ mounts }) => mounts)].map(({ id }) => id)
    const within_sec = endWithinSec(application.stop_grace_sec, keepsAny)
    return { ...place, names: [...new Set(ids)].map(volumeOf), within_sec }
  },

  /** The application has no volumes any more: it may run on any worker. */
  async noteVolumesGone(appId: string): Promise<void> {
    await Application.updateOne({ _id: appId }, { $set: { volume_node: null } }).setOptions(everyTenant)
  },

  /**
   * The applications with a replica on a worker, for its removal. With `settled` null while a deployment of one of them is under
   * way: its end decides which release is there.
   */
  async applicationsOn(deployServerId: string, node: string, settled = false): Promise<string[] | null> {
    if (settled && (await areDeployedOn(deployServerId, node))) return null
    return (await servingOn(deployServerId, node)).map(({ application }) => application._id)
  },

  /** The replicas that serve from a worker, for the wait until they do again. */
  async servingOn(deployServerId: string, node: string): Promise<ServingOnNode[]> {
    const found = (await servingOn(deployServerId, node)).map(async ({ application, deployment }) => {
      const { path, within_sec } = deployment.health_check
      const places = deployment.places.filter((place) => place.node === node)
      return { path, within_sec, places: toServing(places), routed: await routedTo(application, places) }
    })
    return Promise.all(found)
  },

  /**
   * The operations of the open deployments and task runs of an application or a service, or of all that a deploy server
   * has.
   */
  async openDeployments(of: { app_id: string } | { deploy_server_id: string }): Promise<string[]> {
    const open = { ...of, operation_id: { $ne: null } }
    const [deployments, runs, ...others] = await Promise.all([
      Deployment.find(open, { operation_id: 1 }).setOptions(everyTenant).lean(),
      TaskRun.find(open, { operation_id: 1 }).setOptions(everyTenant).lean(),
      'app_id' in of ? [] : Artifact.find(open, { operation_id: 1 }).setOptions(everyTenant).lean(),
      'app_id' in of ? [] : Build.find(open, { operation_id: 1 }).setOptions(everyTenant).lean(),
      'app_id' in of ? [] : Database.find(open, { operation_id: 1 }).setOptions(everyTenant).lean(),
      'app_id' in of ? [] : BackupExecution.find(open, { operation_id: 1 }).setOptions(everyTenant).lean(),
      'app_id' in of ? [] : KeptVolumes.find(open, { operation_id: 1 }).setOptions(everyTenant).lean(),
      'app_id' in of ? [] : Service.find(open, { operation_id: 1 }).setOptions(everyTenant).lean(),
    ])
    const ids = [...deployments, ...runs, ...others.flat()].flatMap(({ operation_id }) => operation_id ?? [])
    const operations = await Operation.find({ _id: { $in: ids }, open: true }, { _id: 1 })
      .setOptions(everyTenant)
      .lean()
    return operations.map(({ _id }) => _id)
  },

  /** Deletes the records of an application’s deployments, scheduled tasks and storages. */
  async forgetDeployments(appId: string): Promise<void> {
    const application = await findApplication(appId)
    if (!application) return
    await forgetTasks(application.tenant_id, { app_id: appId })
    await forgetStorages(application.tenant_id, { owner_id: appId })
    await forget(application.tenant_id, { app_id: appId })
  },

  /** Deletes the records of all applications of a deploy server, and of their deployments. */
  async forgetApplications(deploy_server_id: string): Promise<void> {
    const server = await DeployServer.findById(deploy_server_id).setOptions(everyTenant).lean()
    if (!server) return
    const { tenant_id } = server
    await forgetTasks(tenant_id, { deploy_server_id })
    await forgetStorages(tenant_id, { deploy_server_id })
    await forgetBackups(tenant_id, { deploy_server_id })
    await forgetBackupExecutions(tenant_id, deploy_server_id)
    await KeptServiceVolumes.deleteMany({ tenant_id, deploy_server_id })
    for (const { _id } of await Service.find({ tenant_id, deploy_server_id }, { _id: 1 }).lean())
      await transaction(() => Service.deleteOne({ _id, tenant_id }), tenant_id)
    for (const { _id } of await Domain.find({ tenant_id, deploy_server_id }, { _id: 1 }).lean())
      await transaction(() => Domain.deleteOne({ _id, tenant_id }), tenant_id)
    await forgetArtifacts(tenant_id, deploy_server_id)
    await forgetSwarmCopies(tenant_id, deploy_server_id)
    await forgetSubscriptions(tenant_id, deploy_server_id)
    await forgetBuilds(tenant_id, deploy_server_id)
    await forget(tenant_id, { deploy_server_id })
    for (const { _id } of await Application.find({ tenant_id, deploy_server_id }, { _id: 1 }).lean())
      await transaction(() => Application.deleteOne({ _id, tenant_id }), tenant_id)
    for (const { _id } of await Database.find({ tenant_id, deploy_server_id }, { _id: 1 }).lean())
      await transaction(() => Database.deleteOne({ _id, tenant_id }), tenant_id)
    for (const { _id } of await KeptVolumes.find({ tenant_id, deploy_server_id }, { _id: 1 }).lean())
      await transaction(() => KeptVolumes.deleteOne({ _id, tenant_id }), tenant_id)
  },
})

export type DeploymentActivities = ReturnType<typeof makeDeploymentActivities>

/** The hosts of a load balancer that answer. */
export const balancersOf = async (lbId: string): Promise<string[]> => {
  const hosts = (await replicasOf(lbId)).map(({ host_id }) => answering(host_id))
  return (await Promise.all(hosts)).filter((host_id) => host_id !== null)
}

async function routedTo({ route_id }: ApplicationDocument, places: Place[]): Promise<Routed | null> {
  const route = await Route.findById(route_id ?? '')
    .setOptions(everyTenant)
    .lean()
  if (!route) return null
  const { lb_id } = route
  return { lb_id, targets: targetsAt(route, places), host_ids: await balancersOf(lb_id) }
}

const toServing = (places: Place[]): ServingPlace[] =>
  places.map(({ service_id, ip_address, machine_port }) => ({ service_id, ip_address, machine_port }))

async function forget(tenant_id: string, of: object): Promise<void> {
  for (const { _id } of await Deployment.find({ ...of, tenant_id }, { _id: 1 }).lean())
    await transaction(() => Deployment.deleteOne({ _id, tenant_id }), tenant_id)
}

const gone = (what: string) => ApplicationFailure.nonRetryable(`The ${what} no longer exists`, 'not_found')

async function theDeployment(id: string): Promise<DeploymentDocument> {
  const deployment = await Deployment.findById(id).setOptions(everyTenant).lean()
  if (!deployment) throw gone('deployment')
  return deployment
}

async function theApplication(id: string): Promise<ApplicationDocument> {
  const application = await findApplication(id)
  if (!application) throw gone('application')
  return application
}

/** The load balancer may be deleted with its deploy server meanwhile. */
function unlessGone(error: unknown): null {
  if (error instanceof NotFound || (error instanceof ApplicationFailure && error.type === 'not_found'))
    return null
  throw error
}
