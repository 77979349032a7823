import { randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import type { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { loadBaseImage } from '../support/app-images.ts'
import { breakOuts, breakOutScript, expected, outsideAddresses } from '../support/break-outs.ts'
import type { DeployServerBody, Json } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { buildsOf } from '../support/clients/builds.ts'
import type { CredentialsBody } from '../support/clients/deploy-servers.ts'
import { digestOf, indexType, manifestType, registryOf } from '../support/clients/registries.ts'
import { docker } from '../support/containers.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { get } from '../support/members.ts'
import { makeOtherServer } from '../support/other-servers.ts'
import { accepts, type OwnApi, startOwnApi } from '../support/own-api.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'
import { addressOf, makeMember, makeSubnet, makeVpc } from '../support/vpcs.ts'

// `docker push` from outside, by the engine of the tests, and by requests of our own for what it would never send.

let tenant: TestTenant
let server: DeployServerBody
let credentials: CredentialsBody
let apps: ReturnType<typeof applicationsOf>
let builds: ReturnType<typeof buildsOf>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_count: 2 })
  credentials = await tenant.owner.deployServers.credentials(server.id)
  apps = applicationsOf(tenant.owner, server.id)
  builds = buildsOf(tenant.owner, server.id)
})

const login = () => ({ username: credentials.registry_user, password: credentials.api_token })

/** What the engine says of a push of this image, which answers with a text. */
async function push(
  name: string,
  tag: string,
  answer: string,
  { auth = login(), first = '' }: { auth?: object; first?: string } = {},
): Promise<{ reference: string; said: string }> {
  const repo = `${credentials.registry}/${name}`
  const container = await docker.createContainer({
    Image: 'busybox:latest',
    Cmd: ['sh', '-c', `mkdir /site; echo "${answer}" >/site/index.html`],
  })
  await container.start()
  await container.wait()
  await container.commit({
    repo,
    tag,
    changes: [`CMD ${JSON.stringify(['sh', '-c', `${first} exec httpd -f -p "$PORT" -h /site`])}`],
  })
  await container.remove()
  const image = docker.getImage(`${repo}:${tag}`)
  const said = await text((await image.push({ authconfig: { ...auth, serveraddress: '' } })) as Readable)
  await image.remove()
  return { reference: `${repo}:${tag}`, said }
}

const registry = registryOf(() => credentials)
const { ask, put } = registry

const statesOf = async (name: string) =>
  (await builds.list()).filter(({ image }) => image === name).map(({ image_state }) => image_state)

describe('an image that was pushed', () => {
  test('is deployed by its name and tag, on every worker', async () => {
    const { said } = await push('shop', 'v1', 'pushed')
    const digest = /digest: (sha256:[0-9a-f]{64})/.exec(said)?.[1]
    expect(digest).toBeDefined()
    const app = await apps.make({ image: 'shop', tag: 'v1', replicas: 2 })
    expect((await visit(app.url)).text).toBe('pushed')
    const [image] = (await builds.list()).filter((one) => one.image === 'shop')
    expect(image).toMatchObject({
      status: 'succeeded',
      artifact_id: null,
      artifact: null,
      tag: 'v1',
      digest,
      image_state: 'kept',
      requested_by: server.id,
      size_bytes: expect.any(Number),
    })
    expect((await apps.deployment(app.deployment_id ?? ''))['build_id']).toBe(image?.id)
    const { items } = await tenant.owner.get<{ items: Json[] }>(
      `/api/v1/audit-events?resource_id=${image?.id}`,
    )
    expect(items).toMatchObject([{ resource_kind: 'manifest', actor_name: `token@${server.id.slice(-12)}` }])
  })

  test('takes the place of the one before for the next deployment, and can be pulled', async () => {
    await push('site', 'latest', 'first')
    const app = await apps.make({ image: 'site', tag: 'latest' })
    const { reference } = await push('site', 'latest', 'second')
    expect((await visit(app.url)).text).toBe('first')
    await (await apps.deploy(app.id)).operation.success()
    expect((await visit(app.url)).text).toBe('second')
    const pulling = await docker.pull(reference, { authconfig: { ...login(), serveraddress: '' } })
    expect(await text(pulling as Readable)).toContain('Downloaded newer image')
    await docker.getImage(reference).remove()
    expect(JSON.parse((await ask('GET', 'site/tags/list')).body)).toMatchObject({ tags: ['latest'] })
  })

  testDrawn('may be large, come in parts, and be an index of images', async () => {
    const manifest = await registry.imageOf('large', randomBytes(24 * 1024 ** 2))
    const bytes = Buffer.from(JSON.stringify(manifest))
    expect((await put('large', digestOf(bytes), manifest, manifestType)).status).toBe(201)
    const part = { mediaType: manifestType, digest: digestOf(bytes), size: bytes.length }
    const index = { schemaVersion: 2, mediaType: indexType, manifests: [part] }
    expect((await put('large', 'all', index, indexType)).status).toBe(201)
    const accept = { accept: `${indexType}, ${manifestType}` }
    const found = await ask('GET', 'large/manifests/all', { headers: accept })
    expect([found.status, JSON.parse(found.body)]).toEqual([200, index])
    const layer = manifest.layers[0]?.digest ?? ''
    const head = await ask('HEAD', `large/blobs/${layer}`)
    expect(head).toMatchObject({ status: 200, headers: { 'content-length': String(24 * 1024 ** 2) } })
    // A layer that another image has is not sent again.
    const own = credentials.registry.split('/')[1]
    const mounted = await ask('POST', `other/blobs/uploads/?mount=${layer}&from=${own}/large`)
    expect(mounted.status).toBe(201)
    expect(
      (await put('other', 'v1', { ...manifest, config: await registry.configOf('other') }, manifestType))
        .status,
    ).toBe(201)
  })

  testDrawn('is kept as those of builds are: the last three, and what deployments need', async () => {
    for (let n = 1; n <= 5; n++) {
      await put('kept', 'latest', await registry.imageOf('kept'), manifestType)
      // What a push whose operation is open no longer needs, a later one removes.
      await eventually(async () => (await builds.list()).every(({ operation_id }) => operation_id === null))
    }
    await eventually(async () => (await statesOf('kept')).filter((state) => state === 'gone').length === 2)
    expect((await statesOf('kept')).filter((state) => state === 'kept')).toHaveLength(3)
    const stored = await runOnMachine(
      tenant.owner,
      server.workers[0]?.machine_id ?? '',
      'ls /var/lib/machine/docker/volumes/keelson-registry/_data/docker/registry/v2/repositories/kept/_manifests/tags',
    )
    expect(stored.split('\n')).toHaveLength(3)
  })
})

describe('code of a tenant breaks out', () => {
  let tries: Record<string, string>
  let api: OwnApi
  afterAll(() => api.stop())
  beforeAll(async () => {
    api = await startOwnApi({ KEELSON_API_HOST: '0.0.0.0' })
    const openPort = Number(new URL(api.url).port)
    expect(outsideAddresses()).not.toEqual([])
    for (const address of outsideAddresses()) expect(await accepts(openPort, address)).toBe(true)
    const other = await makeTenant()
    const { id } = await makeVpc(other, { cidr: '10.99.0.0/16' })
    const subnet = await makeSubnet(other, id, { cidr: '10.99.0.0/24' })
    const member = await makeMember(other, subnet.id)
    const [address, name] = [addressOf(member), await get(member, addressOf(member))]
    expect(name).toBeTruthy()
    tries = breakOuts({ address, name: name ?? '' }, await makeOtherServer(), openPort)
  })

  testDrawn('neither from a pushed image', async () => {
    const script = `(${breakOutScript(tries)}) >/site/tried 2>&1; touch /site/over`
    await push('hostile', 'v1', 'hostile', { first: `{ ${encoded(script)}; } &` })
    const app = await apps.make({ image: 'hostile', tag: 'v1' })
    await eventually(async () => (await visit(app.url, '/over')).status === 200, { withinMs: 60_000 })
    expect((await visit(app.url, '/tried')).text.split('\n')).toEqual(expected(tries))
  })

  testDrawn('nor from a step of a build', async () => {
    await loadBaseImage(tenant.owner, server)
    const Dockerfile = `FROM busybox\nRUN ${encoded(breakOutScript(tries))}`
    const { id } = await builds.make('attempt', { Dockerfile })
    const tried = (await builds.log(id)).matchAll(/^#\d+ [\d.]+ ((?:works|refused|BROKE OUT): .*)$/gm)
    expect([...tried].map(([, line]) => line)).toEqual(expected(tries))
  })
})

/** A script in one line, without quotes. */
const encoded = (script: string): string => `echo ${Buffer.from(script).toString('base64')} | base64 -d | sh`

describe('the registry refuses', () => {
  test.each([
    ['no token', 'none'],
    ['a token that is none', `kdt_${'x'.repeat(43)}`],
  ])('%s', async (_, token) => {
    const answer = await ask('GET', '/v2/', { token })
    expect(answer).toMatchObject({ status: 401, headers: { 'www-authenticate': 'Basic realm="keelson"' } })
    expect(answer.body).toContain('UNAUTHORIZED')
  })

  test('the token of another deploy server', async () => {
    const other = await makeTenant()
    const { id } = await other.owner.deployServers.make()
    const theirs = await other.owner.deployServers.credentials(id)
    const { api_token } = theirs
    for (const path of ['shop/manifests/v1', 'shop/tags/list'])
      expect(await ask('GET', path, { token: api_token })).toMatchObject({ status: 403 })
    expect(
      (await push('stolen', 'v1', 'x', { auth: { username: 'token', password: api_token } })).said,
    ).toContain('denied')
    const layer = (await registry.upload('mine', randomBytes(100))).digest
    const from = credentials.registry.split('/')[1]
    const own = `/v2/${theirs.registry.split('/')[1]}/theirs/blobs/uploads/?mount=${layer}&from=${from}/mine`
    expect((await ask('POST', own, { token: api_token })).status).toBe(202) // an upload of its own: nothing was taken over
  })

  test('a manifest of what it does not have, one that is none, and another digest', async () => {
    const nowhere = { digest: `sha256:${'0'.repeat(64)}`, size: 1, mediaType: 'text/plain' }
    const manifest = { schemaVersion: 2, mediaType: manifestType, config: nowhere, layers: [nowhere] }
    expect(await put('bad', 'v1', manifest, manifestType)).toMatchObject({
      status: 400,
      body: expect.stringContaining('UNKNOWN'),
    })
    expect(await put('bad', 'v1', { hello: 1 }, manifestType)).toMatchObject({ status: 400 })
    expect(
      await put('bad', `sha256:${'0'.repeat(64)}`, await registry.imageOf('bad'), manifestType),
    ).toMatchObject({
      status: 400,
      body: expect.stringContaining('DIGEST_INVALID'),
    })
    expect((await builds.list()).filter(({ image }) => image === 'bad')).toEqual([])
  })

  test.each([
    ['GET', '/v2/_catalog', 404],
    ['GET', 'shop/manifests/none', 404],
    ['GET', '/v2/0123456789ab/shop/manifests/v1', 403],
    ['GET', 'Shop/manifests/v1', 404],
    ['GET', 'shop/blobs/sha256:1', 404],
    ['DELETE', 'shop/manifests/v1', 405],
    ['PUT', `shop/manifests/${'x'.repeat(129)}`, 404],
  ])('%s %s', async (method, path, status) => {
    expect((await ask(method, path)).status).toBe(status)
  })

  test('a token from the moment of its rotation', async () => {
    expect((await ask('GET', '/v2/')).status).toBe(200)
    const former = credentials.api_token
    await tenant.owner.ask('POST', `/api/v1/deploy-servers/${server.id}/credentials/rotate`)
    credentials = await tenant.owner.deployServers.credentials(server.id)
    expect((await ask('GET', '/v2/', { token: former })).status).toBe(401)
    expect((await push('late', 'v1', 'x', { auth: { username: 'token', password: former } })).said).toMatch(
      /unauthorized|denied/,
    )
    expect((await push('late', 'v1', 'x')).said).toContain('digest: sha256')
  })
})
