import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { makeBuildActivities } from '../../activities/deploy/builds.ts'
import { Build } from '../../models/deploy/builds.ts'
import { Deployment } from '../../models/deploy/deployments.ts'
import { noteRegistryLost } from '../../models/deploy/image-copies.ts'
import { loadBaseImage } from '../support/app-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { type ApplicationBody, applicationsOf } from '../support/clients/applications.ts'
import { buildsOf } from '../support/clients/builds.ts'
import type { CredentialsBody } from '../support/clients/deploy-servers.ts'
import { digestOf, indexType, manifestType, registryOf } from '../support/clients/registries.ts'
import { describeHosts, first, second, third } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { platform } from '../support/platform.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// The images of builds and pushes are on the worker w1 and on the control plane. Each test continues from the one before it.

const serving = (answer: string): string =>
  `FROM busybox\nRUN mkdir /site && echo ${answer} >/site/index.html\nCMD exec httpd -f -p "$PORT" -h /site`

describeHosts('an image of a deploy server', () => {
  let tenant: TestTenant
  let server: DeployServerBody
  let credentials: CredentialsBody
  let apps: ReturnType<typeof applicationsOf>
  let builds: ReturnType<typeof buildsOf>
  let app: ApplicationBody
  const registry = registryOf(() => credentials)

  const now = (): Promise<DeployServerBody> => tenant.owner.deployServers.get(server.id)
  const replace = async (machine: string): Promise<void> => {
    const path = `/api/v1/deploy-servers/${server.id}/machines/${machine}/replace`
    await (await tenant.owner.begin('POST', path)).operation.success()
  }
  const build = (tag: string) => builds.make('shop', { Dockerfile: serving(tag) }, { tag })
  const kept = async () => (await builds.list()).filter(({ image_state }) => image_state === 'kept')
  const holders = async () => new Set((await kept()).map(({ image_on }) => String(image_on)))

  /** The ids of the images that the registry of this machine has. */
  const storedOn = async (machineId: string | undefined): Promise<string[]> => {
    const folder = '/var/lib/machine/docker/volumes/keelson-registry/_data/docker/registry/v2/repositories'
    const found = await runOnMachine(
      tenant.owner,
      machineId ?? '',
      `cd ${folder} && ls -d */_manifests/tags/* | sed 's/.*\\///'`,
    )
    const all = (await builds.list()).map(({ id }) => id) // the parts of an index have other tags
    return found.split('\n').filter((tag) => all.includes(tag))
  }
  const keptOnBoth = async (): Promise<void> => {
    const { control_plane, workers } = await now()
    const ids = new Set((await kept()).map(({ id }) => id))
    expect(new Set(await storedOn(workers[0]?.machine_id))).toEqual(ids)
    expect(new Set(await storedOn(control_plane?.machine_id))).toEqual(ids)
  }

  // The control plane is on the first host, w1 alone on the second, w2 on the third. The application was there before w2.
  beforeAll(async () => {
    tenant = await makeTenant()
    await open([first])
    server = await tenant.owner.deployServers.make()
    await open([second])
    await replace('w1')
    server = await now()
    await loadBaseImage(tenant.owner, server)
    credentials = await tenant.owner.deployServers.credentials(server.id)
    builds = buildsOf(tenant.owner, server.id)
    apps = applicationsOf(tenant.owner, server.id)
  })
  afterAll(closeFurther)

  test('is copied to the control plane before its build has ended', async () => {
    const { image_on, image_state } = await build('yesterday')
    expect({ image_on, image_state }).toEqual({ image_on: ['w1', 'cp'], image_state: 'kept' })
    app = await apps.make({ image: 'shop', tag: 'yesterday' })
    await build('today')
    await (await apps.deploy(app.id, { tag: 'today' })).operation.success()
    expect((await visit(app.url)).text).toBe('today')
    await keptOnBoth()
  })

  test('is copied when it was pushed, also as an index', async () => {
    const manifest = await registry.imageOf('pushed', randomBytes(2 * 1024 ** 2))
    const bytes = Buffer.from(JSON.stringify(manifest))
    await registry.put('pushed', digestOf(bytes), manifest, manifestType)
    const part = { mediaType: manifestType, digest: digestOf(bytes), size: bytes.length }
    const index = { schemaVersion: 2, mediaType: indexType, manifests: [part] }
    expect((await registry.put('pushed', 'all', index, indexType)).status).toBe(201)
    await eventually(async () => (await builds.list()).every(({ operation_id }) => operation_id === null))
    expect(await holders()).toEqual(new Set(['w1,cp']))
    await keptOnBoth()
  })

  test('leaves both when it is no longer needed', async () => {
    for (let n = 1; n <= 5; n++) {
      await registry.put('many', 'latest', await registry.imageOf('many'), manifestType)
      await eventually(async () => (await builds.list()).every(({ operation_id }) => operation_id === null))
    }
    const states = (await builds.list()).filter(({ image }) => image === 'many')
    expect(states.filter(({ image_state }) => image_state === 'gone')).toHaveLength(2)
    await keptOnBoth()
  })

  test('outlives the loss of w1: its application moves, and yesterday’s is released again', async () => {
    await open([third])
    await (await tenant.owner.deployServers.update(server.id, { worker_count: 2 })).operation.success()
    const lost = (await now()).workers[0]?.machine_id
    const before = (await kept()).map(({ id }) => id)
    const places = async () => {
      const { deployment_id } = await apps.get(app.id)
      return Deployment.findOne({ _id: deployment_id, tenant_id: tenant.id }).lean()
    }
    expect((await places())?.places.map(({ node }) => node)).toEqual(['w1'])
    await platform.kill(second.roles.host)
    const its = { filters: { label: [`keelson.resource=${lost}`] } }
    for (const { Id } of await second.engine.listContainers(its)) await second.engine.getContainer(Id).kill()
    const moved = await eventually(async () => {
      const serves = await places()
      return serves?.places.every(({ node }) => node === 'w2') && serves
    })
    expect(moved).toMatchObject({ kind: 'move', pulls_from: 'cp' })
    expect((await visit(app.url)).text).toBe('today')
    await eventually(async () => {
      const { status, workers } = await now()
      return status === 'ready' && workers[0]?.registered && workers[0].machine_id !== lost
    })
    expect((await kept()).map(({ id }) => id)).toEqual(before)
    const [built] = (await builds.list()).filter(({ tag }) => tag === 'today')
    expect(await builds.log(built?.id ?? '')).toContain(`the image is ${built?.digest}`) // w1 has built it
    expect(await holders()).toEqual(new Set(['cp,w1']))
    await keptOnBoth()
    const oldest = await Deployment.findOne({ app_id: app.id, tenant_id: tenant.id, number: 1 }).lean()
    await (await apps.deploy(app.id, { deployment_id: oldest?._id })).operation.success()
    expect((await visit(app.url)).text).toBe('yesterday')
    expect(await places()).toMatchObject({ pulls_from: 'w1' })
  })

  test('is on a new control plane too', async () => {
    await replace('cp')
    expect(await holders()).toEqual(new Set(['w1,cp']))
    await keptOnBoth()
  })

  test('is gone when the only machine that has it is lost, and its open build fails', async () => {
    const [alone = '', safe = ''] = (await kept()).map(({ id }) => id)
    const { id: tenant_id } = tenant
    await Build.updateOne({ _id: alone, tenant_id }, { $set: { image_on: ['w1'] } })
    await noteRegistryLost(server.id, 'w1')
    const all = await builds.list()
    expect(all.find(({ id }) => id === alone)).toMatchObject({ image_state: 'gone', image_on: [] })
    expect(all.find(({ id }) => id === safe)).toMatchObject({ image_state: 'kept', image_on: ['cp'] })
    const next = makeBuildActivities().placesToCopyTo(server.id, alone)
    await expect(next).rejects.toMatchObject({ type: 'image_lost' })
    await noteRegistryLost(server.id, 'cp')
    expect(await kept()).toEqual([])
  })
})
