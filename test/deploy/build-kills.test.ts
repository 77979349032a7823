import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { Build } from '../../models/deploy/builds.ts'
import { loadAppImages, loadBaseImage } from '../support/app-images.ts'
import { tarOf } from '../support/archives.ts'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { type ApplicationBody, applicationsOf } from '../support/clients/applications.ts'
import { buildsOf } from '../support/clients/builds.ts'
import { manifestType, registryOf } from '../support/clients/registries.ts'
import { uploadAt } from '../support/clients/uploads.ts'
import { eventually } from '../support/eventually.ts'
import { isLong } from '../support/long.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { kill, leftOn, roles, type Victim, victims } from '../support/victims.ts'
import { visit, visitors } from '../support/visits.ts'

// If a process or a machine is killed (-9) during a build, the build ends as requested, has never run twice at once, and
// leaves nothing on the machines. The application on the worker that builds serves on, or with its machine again.

let tenant: TestTenant
let server: DeployServerBody
let builds: ReturnType<typeof buildsOf>
/** In the long form. */
let app: ApplicationBody | null = null
beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  await loadBaseImage(tenant.owner, server)
  builds = buildsOf(tenant.owner, server.id)
  if (!isLong) return
  await loadAppImages(tenant.owner, server)
  app = await applicationsOf(tenant.owner, server.id).make()
})

/** Visits the application, and looks at what is on the machines, until a build has ended. */
async function surroundings() {
  const before = await leftOn(tenant.owner, server)
  const load = app && visitors(app.url, { perSecond: 2 })
  return async (victim: Victim): Promise<void> => {
    await load?.stop()
    if (victim !== 'w1') expect(load?.failures ?? []).toEqual([])
    const { url } = app ?? {}
    if (url) await eventually(async () => (await visit(url)).text === 'v1')
    await eventually(async () => isDeepStrictEqual(await leftOn(tenant.owner, server), before))
  }
}

const onWorker = (command: string): Promise<string> =>
  runOnMachine(tenant.owner, server.workers[0]?.machine_id ?? '', command)

const killIn = (victim: Victim, { operation }: Pick<Accepted, 'operation'>): Promise<void> =>
  kill(victim, tenant.owner, server.id, operation.hasEnded)

/**
 * Each build has a step that takes some seconds, and is seen by its own `sleep`. Those of a worker that is killed need no
 * count: they end with it.
 */
let count = 0
async function begin(seconds: number, victim?: Victim) {
  const step = `sleep ${seconds}.${100 + ++count}`
  const Dockerfile = `FROM busybox\nRUN echo begun; ${step}\nRUN head -c 20000000 /dev/urandom >/data`
  const artifact_id = await builds.push('killed', { Dockerfile })
  const build = await builds.create({ artifact_id, image: 'killed', secrets: { TOKEN: 'very secret' } })
  return { ...build, step, most: victim === 'w1' ? Promise.resolve('1') : mostAtOnce(step, build.id) }
}

/** How many of these commands run at once at most, until the build has ended. */
const mostAtOnce = (step: string, id: string): Promise<string> =>
  onWorker(
    `most=0; while [ ! -e /tmp/over-${id} ]; do n=$(pgrep -fxc '${step}'); [ "$n" -le $most ] || most=$n; sleep 0.4; done; echo $most`,
  )

async function over(id: string, most: Promise<string>): Promise<number> {
  await onWorker(`touch /tmp/over-${id}`)
  return Number(await most)
}

const logged = (words: RegExp) => (id: string) => eventually(async () => words.test(await builds.log(id)))
const moments = {
  'is accepted': async (id: string) => eventually(async () => (await builds.get(id)).status === 'building'),
  builds: logged(/\d begun$/m),
  pushes: logged(/^pushing the image/m),
}
const points = Object.entries(moments).flatMap(([when, moment]) =>
  victims.map((victim) => ({ victim, when, moment })),
)

const left = (id: string, step: string): Promise<string> =>
  onWorker(
    `ls -A /run/keelson-builds | grep -v '^lock$'; pgrep -fx '${step}'; ps ax | grep 'docker[ ]build.*${id}'`,
  )

describe('a build', () => {
  test.each(sampled(points, 1))(
    'completes if $victim is killed when it $when',
    async ({ victim, moment }) => {
      const areAsBefore = await surroundings()
      const { id, operation, step, most } = await begin(3, victim)
      await moment(id)
      await killIn(victim, { operation })
      expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
      expect(await over(id, most)).toBeLessThanOrEqual(1)
      const is = { status: 'succeeded', image_state: 'kept', image_on: ['w1', 'cp'] }
      expect(await builds.get(id)).toMatchObject(is)
      expect(await left(id, step)).toBe('')
      expect(await builds.log(id)).toContain('the image is sha256:')
      await areAsBefore(victim)
    },
  )

  test.each(sampled(victims, 1))(
    'is copied to the control plane if %s is killed meanwhile',
    async (victim) => {
      const { id, operation } = await begin(1, victim)
      await eventually(async () => (await builds.get(id)).image_state === 'kept')
      await killIn(victim, { operation })
      expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
      const { image_on, digest } = await builds.get(id)
      expect(image_on).toEqual(['w1', 'cp'])
      const volume = '/var/lib/machine/docker/volumes/keelson-registry/_data/docker/registry/v2'
      const link = `${volume}/repositories/killed/_manifests/tags/${id}/current/link`
      expect(await runOnMachine(tenant.owner, server.control_plane?.machine_id ?? '', `cat ${link}`)).toBe(
        digest,
      )
    },
  )

  test('is done again if its host worker is killed, after the former builder has ended', async () => {
    const { id, operation, step, most } = await begin(6)
    await logged(/\d begun$/m)(id)
    await platform.restartKilled('host')
    expect(await operation.end()).toMatchObject({ state: 'succeeded' })
    expect(await over(id, most)).toBe(1)
    expect((await builds.log(id)).match(/\d begun$/gm)).toHaveLength(2)
    expect(await left(id, step)).toBe('')
  })

  test('that is cancelled while its host is away ends there too', async () => {
    const { id, operation, step, most } = await begin(3600)
    await logged(/\d begun$/m)(id)
    await platform.kill('host')
    await builds.cancel(id)
    await platform.start('host')
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    expect(await over(id, most)).toBeLessThanOrEqual(1) // it may end between two looks
    expect(await left(id, step)).toBe('')
  })
})

async function beginUpload(size_bytes: number) {
  const path = `/api/v1/deploy-servers/${server.id}/artifacts`
  const { body, operation } = await tenant.owner.begin('POST', path, { name: 'sent', upload: { size_bytes } })
  return { operation, upload: uploadAt(String(body['upload_url'])) }
}

test.each(sampled(roles, 1))(
  'an upload goes on and is unpacked if %s is killed in its middle',
  async (role) => {
    const archive = gzipSync(await tarOf([{ name: 'data', content: randomBytes(24 * 1024 ** 2) }]), {
      level: 0,
    })
    const { upload, operation } = await beginUpload(archive.length)
    const sent = upload.all(archive, 4 * 1024 ** 2)
    await eventually(async () => (await upload.head()).offset > 4 * 1024 ** 2)
    await platform.restartKilled(role)
    await sent
    expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
    expect(await onWorker('stat -c %s /opt/apps/sent/data; ls /opt/apps/.uploads')).toBe(
      String(24 * 1024 ** 2),
    )
  },
)

test.each(sampled(roles, 1))('a push succeeds if it is repeated after %s was killed', async (role) => {
  const credentials = await tenant.owner.deployServers.credentials(server.id)
  const registry = registryOf(() => credentials)
  const name = `again-${role}`
  const layer = randomBytes(8 * 1024 ** 2)
  const interrupted = registry.upload(name, layer).catch(() => null)
  await platform.restartKilled(role)
  await interrupted
  await eventually(async () => {
    const manifest = await registry.imageOf(name, layer)
    return (await registry.put(name, 'v1', manifest)).status === 201
  })
  const images = (await builds.list()).filter(({ image }) => image === name)
  expect(images).toMatchObject([{ tag: 'v1', status: 'succeeded', image_state: 'kept' }])
  const headers = { accept: manifestType }
  expect((await registry.ask('GET', `${name}/manifests/v1`, { headers })).status).toBe(200)
})

test('a deploy server is deleted while it builds and an upload waits', async () => {
  const artifact_id = await builds.push('last', { Dockerfile: 'FROM busybox\nRUN echo begun; sleep 3600' })
  const { id, operation } = await builds.create({ artifact_id, image: 'last' })
  const waits = await beginUpload(100)
  await logged(/\d begun$/m)(id)
  await (await tenant.owner.deployServers.delete(server.id)).operation.success()
  expect(await operation.end()).toMatchObject({ state: 'cancelled' })
  expect((await waits.operation.end()).state).toBe('cancelled')
  expect((await waits.upload.head()).status).toBe(404)
  expect(await Build.countDocuments({ tenant_id: tenant.id })).toBe(0)
})
