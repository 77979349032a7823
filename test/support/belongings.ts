import { newId } from '../../lib/ids.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { sealCredential } from '../../models/connectors/credentials.ts'
import { BackupExecution, makeCopyKey, sealCopyCredentials } from '../../models/deploy/backup-executions.ts'
import { BackupTarget } from '../../models/deploy/backup-targets.ts'
import { Database, makeCredentials } from '../../models/deploy/databases.ts'
import { KeptVolumes } from '../../models/deploy/kept-volumes.ts'
import { transaction } from '../../models/database.ts'
import { rememberBrowser } from '../../models/identity/browsers.ts'
import { User } from '../../models/identity/users.ts'
import { RagCollection } from '../../models/retrieval/collections.ts'
import { RagDocument } from '../../models/retrieval/documents.ts'
import { sealSecret } from '../../models/secrets.ts'
import { aiWorkflowsOf } from './clients/ai-workflows.ts'
import { toolsOf } from './clients/tools.ts'
import { insertRun } from './ai/inserted-runs.ts'
import { specOf } from './ai/specs.ts'
import { archiveOf } from './archives.ts'
import { applicationsOf } from './clients/applications.ts'
import { databasesOf } from './clients/databases.ts'
import { eventually } from './eventually.ts'
import { servicesOf } from './clients/services.ts'
import { eventsOf } from './clients/events.ts'
import { buildsOf } from './clients/builds.ts'
import { makeAuthority } from './certificates.ts'
import { makeMachine } from './api-clients.ts'
import type { TestTenant } from './tenants.ts'
import { makeSubnet, makeVpc, type Member } from './vpcs.ts'

/**
 * A service that was stopped as soon as it had its container: there is no such image. Null if that was noticed first, since
 * then it has none.
 */
async function stoppedService(
  tenant: TestTenant,
  services: ReturnType<typeof servicesOf>,
): Promise<string | null> {
  const { id, operation } = await services.create({
    docker_compose: 'services: { web: { image: "absent:1" } }',
  })
  await eventually(
    async () => (await services.get(id)).containers.length || (await operation.now()).ended_at !== null,
  )
  await tenant.owner.ask('POST', `/api/v1/operations/${operation.id}/cancel`)
  await operation.end()
  return (await services.get(id)).containers.length ? id : null
}

/** Path parameters by the collection at the start of a path: `containers` → `{ id }`. */
export type Belongings = Record<string, Record<string, string>>

/** Makes one resource of each kind for a tenant, for tests that walk all operations. Add each new kind here. */
export async function makeOneOfEach(tenant: TestTenant): Promise<Belongings> {
  const vpc = await makeVpc(tenant)
  const subnet = await makeSubnet(tenant, vpc.id)
  const container = await tenant.containers.create({ start: false, nics: [{ subnet_id: subnet.id }] })
  await container.operation.success()
  const [nic] = ((await tenant.containers.get(container.id)) as Member).nics
  const disk = await tenant.disks.make()
  await (await tenant.disks.snapshot(disk.id, 'kept')).operation.success()
  await (await tenant.containers.attach(container.id, disk.id)).operation.success()
  const microvm = await tenant.microvms.create({ start: false, nics: [{ subnet_id: subnet.id }] })
  await microvm.operation.success()
  const [tap] = ((await tenant.microvms.get(microvm.id)) as Member).nics
  const vm = await tenant.vms.create({ start: false, nics: [{ subnet_id: subnet.id }] })
  await vm.operation.success()
  const [port] = ((await tenant.vms.get(vm.id)) as Member).nics
  const balancer = await tenant.owner.loadBalancers.create(subnet.id)
  const route = await tenant.owner.loadBalancers.addRoute(balancer.id, {
    targets: [{ address: '10.0.0.99' }],
  })
  const authority = await makeAuthority()
  const { cert, key } = await authority.issue(['shop.example'])
  const certificate = await tenant.owner.ask('POST', '/api/v1/certificates', {
    name: 'shop',
    certificate_pem: cert,
    private_key_pem: key,
  })
  const trust = await tenant.owner.ask('POST', '/api/v1/ca-trusts', {
    name: 'inside',
    certificates_pem: authority.cert,
  })
  const server = await tenant.owner.deployServers.make()
  const apps = applicationsOf(tenant.owner, server.id)
  const app = await apps.create({ image: 'none', envs: { GREETING: `hello ${newId()}` } })
  await tenant.owner.ask('POST', `/api/v1/operations/${app.operation.id}/cancel`)
  await app.operation.end()
  const [deployment] = await apps.deployments()
  const { body: task } = await apps.addTask(app.id, { command: 'true' })
  const artifact = await apps.push('shop', await archiveOf({ 'index.html': 'hello' }))
  await artifact.operation.success()
  const build = await buildsOf(tenant.owner, server.id).create({
    artifact_id: artifact.id,
    image: 'none',
    dockerfile: 'none',
  })
  await build.operation.end()
  const { body: storage } = await apps.addStorage(app.id, '/data')
  const database = await databasesOf(tenant.owner, server.id).create({ type: 'keydb' }) // has no image here
  await database.operation.end()
  const { body: exports } = await databasesOf(tenant.owner, server.id).addStorage(database.id, '/exports')
  const backup = await databasesOf(tenant.owner, server.id).schedule(database.id, { frequency: '0 3 1 1 *' })
  const execution = await makeExecution(tenant.id, server.id, database.id)
  const formerVolume = newId()
  const former = { storage_id: formerVolume, version: '6.3.4', kept_at: new Date() }
  // Without data, a start that fails takes all volumes away.
  const holding = { $set: { has_data: true }, $push: { former_volumes: former } }
  await Database.updateOne({ _id: database.id, tenant_id: tenant.id }, holding)
  const kept = newId()
  await new KeptVolumes({
    _id: kept,
    tenant_id: tenant.id,
    name: 'kept',
    status: 'kept',
    deploy_server_id: server.id,
    type: 'redis',
    version: '8.0.3',
    credentials_sealed: await makeCredentials(kept),
    volume_node: 'w1',
  }).save()
  const services = servicesOf(tenant.owner, server.id)
  const service = { id: await eventually(() => stoppedService(tenant, services)) }
  const its = { container: 'web' }
  const { body: serviceTask } = await services.addTask(service.id, { ...its, command: 'true' })
  const { body: serviceStorage } = await tenant.owner.ask('POST', `${services.path}/${service.id}/storages`, {
    ...its,
    mount_path: '/data',
  })
  const domain = await apps.addDomain(app.id, { name: 'shop.example.com', tls: false })
  await domain.operation.success()
  const events = eventsOf(tenant.owner, server.id)
  // An address that the platform does not deliver to.
  const subscription = await events.make({ url: 'http://localhost:9/' })
  const delivery = await events.test(subscription.id)
  const { id: client } = await makeMachine(tenant.owner, ['containers:read'])
  const role = { name: `role-${newId().slice(-12)}`, permissions: ['containers:read'] }
  await tenant.owner.ask('POST', '/api/v1/roles', role)
  const { items: sessions } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/account/sessions')
  const owner = await User.findOne({ tenant_id: tenant.id, roles: 'owner' }).lean()
  if (owner) await rememberBrowser(owner, { address: '127.0.0.1', user_agent: 'test' })
  const { items: browsers } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/account/browsers')
  const login = { registry: 'registry.example.com', username: 'none', password: 'none' }
  const { body: credential } = await tenant.owner.ask('POST', '/api/v1/registry-credentials', login)
  const user = await (await tenant.user('viewer')).get<{ id: string }>('/api/v1/account')
  const tool = await toolsOf(tenant.owner).make({ kind: 'builtin', builtin: 'search' })
  const say = { kind: 'template', value: 'hello' }
  const workflows = aiWorkflowsOf(tenant.owner)
  const workflow = await workflows.published(specOf({ say }, { models: {} }))
  const { body: evalCase } = await workflows.putEval(workflow.id, {
    name: 'hello',
    input: {},
    assertion: { kind: 'contains', text: 'hello' },
  })
  return {
    'account/sessions': { id: sessions[0]?.id ?? '' },
    'account/browsers': { id: browsers[0]?.id ?? '' },
    'api-clients': { id: client },
    roles: { name: role.name, permission: 'containers:read' },
    users: { id: user.id },
    containers: { id: container.id, disk_id: disk.id, nic_id: nic?.id ?? '', database_id: database.id },
    microvms: { id: microvm.id, disk_id: disk.id, nic_id: tap?.id ?? '', database_id: database.id },
    vms: { id: vm.id, disk_id: disk.id, nic_id: port?.id ?? '' },
    'registry-credentials': { id: String(credential['id']) },
    disks: { id: disk.id, name: 'kept' },
    vpcs: { id: vpc.id },
    subnets: { id: subnet.id },
    'load-balancers': { id: balancer.id, route_id: route.id },
    certificates: { id: String(certificate.body['id']) },
    'ca-trusts': { id: String(trust.body['id']) },
    'deploy-servers': {
      id: server.id,
      app: app.id,
      deployment: deployment?.id ?? '',
      key: 'GREETING',
      task: String(task['id']),
      storage: String(storage['id']),
      domain: domain.id,
      db: database.id,
      volume: kept,
      execution,
      artifact: artifact.id,
      subscription: subscription.id,
      delivery: delivery.id,
      build: build.id,
      svc: service.id,
    },
    'deploy-servers/databases': {
      storage: String(exports['id']),
      backup: String(backup.body['id']),
      volume: formerVolume,
    },
    'deploy-servers/services': { task: String(serviceTask['id']), storage: String(serviceStorage['id']) },
    operations: { id: container.operation.id },
    'backup-targets': { id: await makeTarget(tenant.id) },
    connectors: { id: await makeConnector(tenant.id) },
    tools: { id: tool.id },
    workflows: {
      id: workflow.id,
      version: '1',
      caseId: String(evalCase['id']),
      ...(await insertRun(tenant.id, workflow.id)),
    },
    'rag/collections': await makeCollection(tenant.id),
  }
}

/** A collection whose deletion failed, with a document that could not be read. */
async function makeCollection(tenant_id: string): Promise<{ name: string; docId: string }> {
  const [collection_id, docId] = [newId(), newId()]
  await transaction(async () => {
    await new RagCollection({
      _id: collection_id,
      tenant_id,
      name: 'left',
      status: 'error',
      store_id: newId(),
      embedder: { id: 'none@0', name: 'none', hash: '0', dimensions: 384, most_tokens: 256 },
      metadata_schema: { year: 'number' },
    }).save()
    await new RagDocument({
      _id: docId,
      tenant_id,
      name: 'report.pdf',
      status: 'error',
      collection_id,
      type: 'pdf',
      metadata: { year: 2024 },
      size_bytes: 9,
      content_hash: '0',
      version: 1,
      stage: 'failed',
      failed_stage: 'extracting',
    }).save()
  })
  return { name: 'left', docId }
}

/** A bucket that the platform does not reach. */
async function makeTarget(tenant_id: string): Promise<string> {
  const _id = newId()
  await new BackupTarget({
    _id,
    tenant_id,
    name: 'away',
    endpoint: 'http://127.0.0.1:9',
    region: 'us-east-1',
    bucket: 'away',
    path_style: true,
    access_key_id: 'none',
    secret_sealed: await sealSecret('none', _id),
    checked_at: new Date(),
  }).save()
  return _id
}

/** A key for a server that the platform does not reach. */
async function makeConnector(tenant_id: string): Promise<string> {
  const of = { _id: newId(), tenant_id, version: 1 }
  await new Connector({
    ...of,
    name: 'away',
    provider: 'openai_compatible',
    kind: 'api_key',
    base_url: 'http://127.0.0.1:9',
    status: 'unchecked',
    is_default: true,
    secret_sealed: await sealCredential(of, { token: 'none', refresh_token: null, client_secret: null }),
  }).save()
  return of._id
}

/** A backup that failed. */
async function makeExecution(
  tenant_id: string,
  deploy_server_id: string,
  database_id: string,
): Promise<string> {
  const _id = newId()
  const none = { user: '-', password: '-', database: '-', root_password: '-' }
  await new BackupExecution({
    _id,
    tenant_id,
    name: 'failed',
    status: 'failed',
    deploy_server_id,
    database_id,
    database_name: 'none',
    type: 'keydb',
    version: '6.3.4',
    image: 'none',
    cpu_cores: 0.5,
    memory_mib: 32,
    key_sealed: await makeCopyKey(_id),
    credentials_sealed: await sealCopyCredentials(_id, none),
  }).save()
  return _id
}

/** The ids for the parameters of a path. What is below another thing of the collection has ids of its own. */
export function idsFor(belongings: Belongings, path: string): Record<string, string> | undefined {
  const collection = collectionOf(path)
  const below = /\{id\}\/([a-z-]+)\//.exec(path)?.[1] ?? ''
  const ids = belongings[collection]
  return ids && { ...ids, ...belongings[`${collection}/${below}`] }
}

/** `/api/v1/containers/{id}/start` → `containers` */
export const collectionOf = (path: string): string => /^\/api\/v1\/([^{]+?)\/?(\{|$)/.exec(path)?.[1] ?? path
