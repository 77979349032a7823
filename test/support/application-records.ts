import { newId } from '../../lib/ids.ts'
import { records } from '../../models/compute/samples.ts'
import {
  Application,
  type ApplicationDocument,
  type Envs,
  sealEnvs,
} from '../../models/deploy/applications.ts'
import { Build, type BuildDocument } from '../../models/deploy/builds.ts'
import { Deployment, type DeploymentDocument, type Place } from '../../models/deploy/deployments.ts'
import { DeployServer, type DeployServerDocument } from '../../models/deploy/deploy-servers.ts'
import { ScheduledTask, type ScheduledTaskDocument } from '../../models/deploy/scheduled-tasks.ts'
import { sealRevision, Service, type ServiceDocument } from '../../models/deploy/services.ts'
import { TaskRun } from '../../models/deploy/task-runs.ts'
import { Route } from '../../models/network/load-balancer-routes.ts'
import { LoadBalancer, type LoadBalancerDocument } from '../../models/network/load-balancers.ts'

const name = (): string => `row-${newId().slice(-12)}`
const place = (): Place => {
  const [service_id, machine_id] = [newId(), newId()]
  return { service_id, node: 'w1', machine_id, ip_address: '10.77.0.11', machine_port: null }
}
const models = [
  DeployServer,
  Application,
  Deployment,
  Build,
  Service,
  ScheduledTask,
  TaskRun,
  Route,
  LoadBalancer,
]

const inserted = new Set<string>()

export async function removeApplicationRecords(): Promise<void> {
  for (const tenant_id of inserted)
    for (const model of models) await (model as typeof Application).deleteMany({ tenant_id })
}

/** Inserts a deploy server without machines, and what it has. `removeApplicationRecords` removes all. */
export async function applicationRecordsOf(tenant_id: string) {
  inserted.add(tenant_id)
  const size = {
    worker_count: 1,
    worker_instance_type: 'mini',
    worker_disk_gib: 2,
    app_instance_type: 'mini',
  }
  const insertServer = async (over: Partial<DeployServerDocument> = {}): Promise<DeployServerDocument> => {
    const its = { tenant_id, name: name(), status: 'ready', machine_kind: 'container' } as const
    return (await new DeployServer({ ...size, ...its, ...over }).save()).toObject()
  }
  const server = await insertServer()
  const of = { tenant_id, deploy_server_id: server._id }
  const release = { image: 'demo', tag: 'v1', replicas: 1, cpu_cores: 0.1, memory_mib: 32, stop_grace_sec: 1 }
  const health_check = { path: null, within_sec: 60 }
  let number = 0

  return {
    server,
    place,

    async application({ envs = {}, ...over }: Partial<ApplicationDocument> & { envs?: Envs } = {}) {
      const envs_sealed = await sealEnvs(tenant_id, envs)
      const its = { ...of, ...release, health_check, name: name(), status: 'active', envs_sealed }
      return (await new Application({ ...its, ...over }).save()).toObject()
    },

    /** The release that serves since then. */
    async release(
      { _id: app_id, envs_sealed }: ApplicationDocument,
      { since = new Date(), ...over }: Partial<DeploymentDocument> & { since?: Date } = {},
    ): Promise<DeploymentDocument> {
      const its = { ...of, ...release, health_check, envs_sealed, app_id, name: name(), number: ++number }
      const phases = [{ phase: 'switching', at: since }]
      const done = { kind: 'deploy', status: 'succeeded', phases, ended_at: since } as const
      const deployment = (await new Deployment({ ...its, ...done, ...over }).save()).toObject()
      await Application.updateOne({ _id: app_id, tenant_id }, { $set: { current_id: deployment._id } })
      return deployment
    },

    /** A build whose image is kept. */
    async build(over: Partial<BuildDocument> = {}): Promise<BuildDocument> {
      const its = { ...of, image: 'demo', tag: 'v1', artifact_id: newId(), folder: 'demo', timeout_sec: 1 }
      const done = { status: 'succeeded', image_state: 'kept', digest: `sha256:${'0'.repeat(64)}` } as const
      return (await new Build({ ...its, name: name(), ...done, ...over }).save()).toObject()
    },

    async service(text: string, envs: Envs): Promise<ServiceDocument> {
      const plan = { containers: [], networks: [], volumes: [] }
      const revision_sealed = await sealRevision(tenant_id, { text, envs, generated: {}, plan })
      const its = { ...of, name: name(), status: 'running', within_sec: 60, revision_sealed }
      return (await new Service(its).save()).toObject()
    },

    /** A task of an application, which is due at no time. */
    async task({ _id: app_id }: ApplicationDocument): Promise<ScheduledTaskDocument> {
      const its = { ...of, app_id, owner_kind: 'application', name: name(), command: 'true', timeout_sec: 1 }
      const timing = { frequency: '0 0 1 1 *', timezone: 'UTC', overlaps: false, enabled: false }
      return (await new ScheduledTask({ _id: newId(), ...its, ...timing }).save()).toObject()
    },

    /** So many runs of a task that have ended. */
    async runs({ _id: task_id, app_id }: ScheduledTaskDocument, count: number): Promise<void> {
      const its = { ...of, app_id, task_id, owner_kind: 'application', command: 'true', timeout_sec: 1 }
      const runs = Array.from({ length: count }, () => ({ ...its, name: name(), status: 'succeeded' }))
      await TaskRun.insertMany(runs)
    },

    /** The load balancer, which publishes a port on no host. */
    async balancer(): Promise<void> {
      const ports = [{ port: 80, protocol: 'http', host_port: 8080 }]
      const endpoints = [
        { host_id: newId(), host_address: '127.0.0.1', ip_address: '', state: 'running', ports },
      ]
      const its = { tenant_id, name: name(), status: 'running', subnet_id: newId(), vpc_id: newId() }
      const fields = { listeners: [], health_check: {}, replicas: 0, log_cap_mib: 1, endpoints }
      const { _id } = await new LoadBalancer({ ...its, ...fields } as unknown as LoadBalancerDocument).save()
      await DeployServer.updateOne({ _id: server._id, tenant_id }, { $set: { lb_id: _id } })
      server.lb_id = _id
    },

    /** The route of an application, with one target. */
    async route({ _id: app_id }: ApplicationDocument): Promise<void> {
      const target = { id: newId(), address: '10.77.0.11', nic_id: null, port: 30_000, weight: 100 }
      const its = {
        _id: newId(),
        tenant_id,
        lb_id: server.lb_id,
        name: name(),
        status: 'active',
        priority: 1,
      }
      const timeouts = { idle_timeout_sec: 60, request_timeout_sec: 60, drain_timeout_sec: 0 }
      const flags = { redirect_to_https: false, backend_tls: false, sticky: false }
      const fields = { path_match_type: 'prefix', backend_port: 80, targets: [target], ...timeouts, ...flags }
      const { _id: route_id } = await new Route({ ...its, ...fields }).save()
      await Application.updateOne({ _id: app_id, tenant_id }, { $set: { route_id } })
    },

    /** What a host told of a replica at that time. */
    async sample(app_id: string, replica: string, time: Date): Promise<void> {
      const used = { cpu_ms: 1, memory_bytes: 1, net_rx_bytes: 0, net_tx_bytes: 0, disk_read_bytes: 0 }
      const row = { started_at: time, ...used, disk_write_bytes: 0 }
      const meta = { tenant_id, instance_id: app_id, replica }
      await records.raw.model.collection.insertOne({ meta, time, ...row })
    },
  }
}
