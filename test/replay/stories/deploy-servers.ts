import { gzipSync } from 'node:zlib'
import { loadAppImages, loadBaseImage } from '../../support/app-images.ts'
import { archiveOf } from '../../support/archives.ts'
import { applicationsOf } from '../../support/clients/applications.ts'
import { servicesOf } from '../../support/clients/services.ts'
import { composed } from '../../support/composed.ts'
import { buildsOf } from '../../support/clients/builds.ts'
import { databasesOf } from '../../support/clients/databases.ts'
import { registryOf } from '../../support/clients/registries.ts'
import { uploadAt } from '../../support/clients/uploads.ts'
import { makeDatabaseImages } from '../../support/database-images.ts'
import { eventually } from '../../support/eventually.ts'
import { Operation } from '../../support/client.ts'
import { openPebble, type Pebble } from '../../support/pebble.ts'
import { hideSwarmCopies } from '../../support/swarm-copies.ts'
import { tenant, type Stories } from '../world.ts'
import { closeAcme } from './load-balancers.ts'

const { deployServers } = tenant.owner

/** The tenant has one deploy server: each story begins with what the one before has left. */
export const deployServerStories: Stories = {
  'createDeployServer.ready': async () => (await deployServers.create()).operation,
  'updateDeployServer.grown': async () =>
    (await deployServers.update(await theServer(), { worker_count: 2, worker_instance_type: 'small' }))
      .operation,
  'createDeployment.first': async () => (await (await applications()).create({ name: 'shop' })).operation,
  'createDeployment.next': async () =>
    (await (await applications()).deploy(await theApplication(), { tag: 'v2' })).operation,
  'createDeployment.failed': async () =>
    (await (await applications()).deploy(await theApplication(), { tag: 'crash' })).operation,
  'createDeployment.cancelled': async () => {
    const apps = await applications()
    const { id, operation } = await apps.deploy(await theApplication(), { tag: 'silent' })
    await eventually(async () => (await apps.deployment(id)).phases.some(({ phase }) => phase === 'checking'))
    await apps.cancel(id)
    return operation
  },
  'createDeployment.superseded': async () => {
    const apps = await applications()
    const app = await theApplication()
    const first = await apps.deploy(app, { tag: 'silent' })
    const second = await apps.deploy(app, { tag: 'v1' })
    const third = await apps.deploy(app, { tag: 'v2' })
    await apps.cancel(first.id)
    await third.operation.success()
    return second.operation
  },
  'createArtifact.ready': async () =>
    (await (await applications()).push('shop', await archiveOf({ file: 'hello' }))).operation,
  'createArtifact.failed': async () =>
    (await (await applications()).push('shop', gzipSync('hello'.repeat(500)))).operation,
  'createArtifact.uploaded': async () => {
    const archive = await archiveOf({ file: 'sent' })
    const path = `/api/v1/deploy-servers/${await theServer()}/artifacts`
    const asked = { name: 'sent', upload: { size_bytes: archive.length } }
    const { body, operation } = await tenant.owner.begin('POST', path, asked)
    await uploadAt(String(body['upload_url'])).all(archive)
    return operation
  },
  'createService.running': async () =>
    (await (await services()).create({ name: 'notes', docker_compose: composed() })).operation,
  'updateService.running': async () =>
    (await (await services()).update(await theService(), { docker_compose: composed({ tag: 'v2' }) }))
      .operation,
  'updateService.taken-back': async () =>
    (await (await services()).update(await theService(), { docker_compose: composed({ tag: 'none' }) }))
      .operation,
  'restartService.running': async () =>
    (await (await services()).do(await theService(), 'restart')).operation,
  'stopService.stopped': async () => (await (await services()).do(await theService(), 'stop')).operation,
  'startService.running': async () => (await (await services()).do(await theService(), 'start')).operation,
  'deleteService.deleted': async () => (await (await services()).delete(await theService())).operation,
  'createBuild.succeeded': () => buildOf('built'),
  'createBuild.pushed': () => pushOf('pushed'),
  'createDeployment.built': async () =>
    (await (await applications()).create({ name: 'built', image: 'built', tag: 'latest' })).operation,
  'createBuild.failed': async () => {
    const builds = await buildsHere()
    const artifact_id = await builds.push('broken', { Dockerfile: 'FROM busybox\nRUN exit 7' })
    return (await builds.create({ artifact_id, image: 'broken' })).operation
  },
  'createBuild.cancelled': async () => {
    const builds = await buildsHere()
    const artifact_id = await builds.push('slow', { Dockerfile: 'FROM busybox\nRUN sleep 3600' })
    const { id, operation } = await builds.create({ artifact_id, image: 'slow' })
    await eventually(async () => (await builds.log(id)).includes('RUN sleep'))
    await builds.cancel(id)
    return operation
  },
  'createTaskRun.succeeded': () => runOf('echo done'),
  'createTaskRun.failed': () => runOf('exit 3'),
  'createTaskRun.cancelled': async () => {
    const operation = await runOf('sleep 3600')
    await eventually(async () => (await operation.now()).step?.startsWith('running the command'))
    await tenant.owner.ask('POST', `/api/v1/operations/${operation.id}/cancel`)
    return operation
  },
  'updateDeployServer.shrunk': async () => {
    await (await applications()).make({ name: 'two', replicas: 2, tag: 'v1' })
    return (await deployServers.update(await theServer(), { worker_count: 1, worker_disk_gib: 3 })).operation
  },
  'replaceDeployServer.worker': () => replacementOf('w1'),
  'replaceDeployServer.controlPlane': () => replacementOf('cp'),
  'replaceDeployServer.withoutCopy': async () => {
    const { id, control_plane } = await deployServers.get(await theServer())
    const replacement = await replacementOf('cp')
    await hideSwarmCopies(id, control_plane?.machine_id ?? '')
    return replacement
  },
  'createDeployment.volumes': async () => {
    const apps = await applications()
    const app = await theApplication()
    await apps.addStorage(app, '/data')
    return (await apps.deploy(app, { tag: 'v2' })).operation
  },
  'createDeployment.stopped': async () =>
    (await (await applications()).stop(await theApplication())).operation,
  'createDatabase.running': async () => {
    await makeDatabaseImages('redis')
    return (await (await databases()).create({ name: 'ledger' })).operation
  },
  'createDatabase.failed': async () => {
    const all = await databases()
    const { id, operation } = await all.create({ type: 'keydb' })
    await operation.end()
    await (await all.delete(id)).operation.success()
    return operation
  },
  'restartDatabase.running': async () => {
    const all = await databases()
    await all.change(await theDatabase(), { memory_mib: 40 })
    return (await all.restart(await theDatabase())).operation
  },
  'restartDatabase.takenBack': async () => {
    const [all, id] = [await databases(), await theDatabase()]
    const { body } = await all.addStorage(id, '/usr/bin/redis-cli/x')
    const { operation } = await all.restart(id)
    await operation.end()
    await all.removeStorage(id, String(body['id']))
    return operation
  },
  'stopDatabase.stopped': async () => (await (await databases()).stop(await theDatabase())).operation,
  'startDatabase.running': async () => (await (await databases()).start(await theDatabase())).operation,
  'publishDatabase.running': async () => (await (await databases()).publish(await theDatabase())).operation,
  'unpublishDatabase.running': async () =>
    (await (await databases()).unpublish(await theDatabase())).operation,
  'deleteDatabase.kept': async () => (await (await databases()).delete(await theDatabase(), '')).operation,
  'deleteKeptVolumes.deleted': async () => {
    const all = await databases()
    const [kept] = await all.keptVolumes()
    return (await all.destroyKept(kept?.id ?? '')).operation
  },
  'deleteDatabase.deleted': async () => {
    const all = await databases()
    const { id } = await all.make()
    return (await all.delete(id)).operation
  },
  'createDomain.active': () => domainOf('shop.example.com'),
  'createDomain.error': async () => {
    await (await authority()).resolve('lost.example.com', '127.0.0.99') // nothing listens there
    return domainOf('lost.example.com')
  },
  'retryDomain.active': async () => {
    await (await authority()).resolve('lost.example.com', null)
    const [apps, app, id] = [await applications(), await theApplication(), await lostDomain()]
    return (await apps.retryDomain(app, id)).operation
  },
  'deleteDomain.deleted': async () => {
    const [apps, app, id] = [await applications(), await theApplication(), await lostDomain()]
    return (await apps.removeDomain(app, id)).operation
  },
  'deleteApplication.deleted': async () =>
    (await (await applications()).delete(await theApplication())).operation,
  'deleteDeployServer.deleted': async () => (await deployServers.delete(await theServer())).operation,
  'createDeployServer.cancelled': async () => {
    const { id, operation } = await deployServers.create()
    await operation.cancel()
    await operation.end()
    await (await deployServers.delete(id)).operation.success() // those of backups begin with a server of their own
    return operation
  },
}

async function buildOf(image: string): Promise<Operation> {
  const builds = await buildsHere()
  const artifact_id = await builds.push(image, { Dockerfile: 'FROM busybox\nCMD exec httpd -f -p "$PORT"' })
  return (await builds.create({ artifact_id, image })).operation
}

async function pushOf(image: string): Promise<Operation> {
  const credentials = await deployServers.credentials(await theServer())
  const registry = registryOf(() => credentials)
  await registry.put(image, 'v1', await registry.imageOf(image))
  const [pushed] = (await (await buildsHere()).list()).filter((one) => one.image === image)
  const its = `/api/v1/operations?resource_id=${pushed?.id}`
  const [found] = (await tenant.owner.get<{ items: { id: string }[] }>(its)).items
  return new Operation(tenant.owner, `/api/v1/operations/${found?.id}`)
}

const databases = async () => databasesOf(tenant.owner, await theServer())

const theDatabase = async (): Promise<string> => (await (await databases()).list())[0]?.id ?? ''

async function runOf(command: string): Promise<Operation> {
  const apps = await applications()
  const app = await theApplication()
  const { body } = await apps.addTask(app, { command })
  return (await apps.runTask(app, String(body['id']))).operation
}

const replacementOf = async (machine: string): Promise<Operation> => {
  const path = `/api/v1/deploy-servers/${await theServer()}/machines/${machine}/replace`
  return (await tenant.owner.begin('POST', path)).operation
}

async function buildsHere() {
  const server = await deployServers.get(await theServer())
  await loadBaseImage(tenant.owner, server)
  return buildsOf(tenant.owner, server.id)
}

export async function theServer(): Promise<string> {
  const { body } = await tenant.owner.ask('POST', '/api/v1/deploy-servers')
  return String(body['id'])
}

async function applications() {
  const server = await deployServers.get(await theServer())
  await loadAppImages(tenant.owner, server)
  return applicationsOf(tenant.owner, server.id)
}

async function services() {
  const server = await deployServers.get(await theServer())
  await loadAppImages(tenant.owner, server)
  return servicesOf(tenant.owner, server.id)
}

async function theService(): Promise<string> {
  const path = `/api/v1/deploy-servers/${await theServer()}/services?name=notes`
  return (await tenant.owner.get<{ items: { id: string }[] }>(path)).items[0]?.id ?? ''
}

async function theApplication(): Promise<string> {
  const path = `/api/v1/deploy-servers/${await theServer()}/applications?name=shop`
  const { items } = await tenant.owner.get<{ items: { id: string }[] }>(path)
  return items[0]?.id ?? ''
}

async function domainOf(name: string): Promise<Operation> {
  await authority()
  return (await (await applications()).addDomain(await theApplication(), { name })).operation
}

async function lostDomain(): Promise<string> {
  const path = `/api/v1/deploy-servers/${await theServer()}/applications/${await theApplication()}/domains`
  const { items } = await tenant.owner.get<{ items: { id: string }[] }>(`${path}?name=lost.example.com`)
  return items[0]?.id ?? ''
}

let theAuthority: Pebble | null = null
/** Asks the deploy server's load balancer for proofs. */
async function authority(): Promise<Pebble> {
  if (theAuthority) return theAuthority
  await closeAcme()
  const { lb_id } = await deployServers.get(await theServer())
  const [endpoint] = (await tenant.owner.loadBalancers.get(lb_id)).endpoints
  theAuthority = await openPebble(endpoint?.host_address ?? '', endpoint?.ports[0]?.host_port ?? 0)
  return theAuthority
}

export const closeAuthority = async (): Promise<void> => theAuthority?.close()
