import { newId } from '../../lib/ids.ts'
import { Application, type ApplicationDocument, sealEnvs } from '../../models/deploy/applications.ts'
import {
  type DeployNode,
  DeployServer,
  type DeployServerDocument,
} from '../../models/deploy/deploy-servers.ts'
import { Deployment, type DeploymentDocument, type Place } from '../../models/deploy/deployments.ts'
import { atEndOfFile } from './end-of-file.ts'
import { insertContainers } from './rows.ts'

const name = () => `row-${newId().slice(-12)}`

/** Inserts records of a deploy server whose machines are on no engine, for tests of rules. They go at the end of the file. */
export function deployRecordsOf(tenant_id: string) {
  atEndOfFile(async () => {
    for (const model of [DeployServer, Application, Deployment])
      await (model as typeof Deployment).deleteMany({ tenant_id })
  })
  const release = {
    image: 'demo',
    tag: 'v1',
    port: 3000,
    command: [],
    replicas: 1,
    cpu_cores: 0.1,
    memory_mib: 32,
    health_check: { path: null, within_sec: 60 },
    stop_grace_sec: 1,
  }
  return {
    /** A control plane or a worker, with the record of its machine. */
    async node(host_id: string | null, over: Partial<DeployNode> & { name: string }): Promise<DeployNode> {
      const _id = newId()
      await insertContainers(tenant_id, [{ _id, name: name(), host_id, managed_by: tenant_id }])
      const ip_address = `10.77.0.${over.name === 'cp' ? 10 : 10 + Number(over.name.slice(1))}`
      const at = { ip_address, machine_id: _id, disk_id: null, disk_gib: 2 }
      return { ...at, instance_type: 'mini', registered: true, lost_at: null, ...over }
    },

    async server(
      nodes: DeployNode[],
      over: Partial<DeployServerDocument> = {},
    ): Promise<DeployServerDocument> {
      const size = {
        worker_count: nodes.filter(({ name: one }) => one !== 'cp').length,
        worker_disk_gib: 2,
        app_instance_type: 'mini',
      } as const
      const its = { tenant_id, name: name(), tags: {}, status: 'ready', machine_kind: 'container' } as const
      const server = new DeployServer({ ...its, ...size, worker_instance_type: 'mini', nodes, ...over })
      return (await server.save()).toObject()
    },

    async application(
      { _id: deploy_server_id }: DeployServerDocument,
      over: Partial<ApplicationDocument> = {},
    ): Promise<ApplicationDocument> {
      const its = { tenant_id, deploy_server_id, name: name(), tags: {}, status: 'active' } as const
      const envs_sealed = await sealEnvs(tenant_id, {})
      return (await new Application({ ...release, ...its, envs_sealed, ...over }).save()).toObject()
    },

    /** A deployment with a replica on each of these workers; it serves unless it has an operation. */
    async deployment(
      { _id: app_id, deploy_server_id, envs_sealed, memory_mib, last_number }: ApplicationDocument,
      nodes: DeployNode[],
      over: Partial<DeploymentDocument> = {},
    ): Promise<DeploymentDocument> {
      const places = nodes.map(
        ({ name: node, machine_id, ip_address }): Place => ({
          service_id: newId(),
          node,
          machine_id: machine_id ?? '',
          ip_address,
          machine_port: 20_000,
        }),
      )
      const number = last_number + 1
      const its = {
        tenant_id,
        app_id,
        deploy_server_id,
        number,
        name: name(),
        tags: {},
        envs_sealed,
        memory_mib,
      }
      const made = { status: 'succeeded', kind: 'deploy', places } as const
      const deployment = (await new Deployment({ ...release, ...its, ...made, ...over }).save()).toObject()
      const { _id, operation_id } = deployment
      await Application.updateOne(
        { _id: app_id, tenant_id },
        {
          $set: { last_number: number, ...(operation_id === null ? { current_id: _id } : { turn_id: _id }) },
          $addToSet: { wanted_ids: _id },
        },
      )
      return deployment
    },
  }
}
