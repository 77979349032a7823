import { beforeAll, describe, expect, test } from '@jest/globals'
import { builtLabel } from '../../drivers/swarm/engine-images.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { loadBaseImage } from '../support/app-images.ts'
import { makeCaddy } from '../support/base-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { type BuildBody, buildsOf } from '../support/clients/builds.ts'
import { testDrawn } from '../support/drawn.ts'
import { decodedHistory, textOfHistory } from '../support/histories.ts'
import { eventually } from '../support/eventually.ts'
import { followLog } from '../support/follow.ts'
import { stackSettings } from '../support/stack.ts'
import { innerEngine, runOnMachine } from '../support/machines-inside.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

let tenant: TestTenant
let server: DeployServerBody
let builds: ReturnType<typeof buildsOf>
let apps: ReturnType<typeof applicationsOf>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_count: 2 })
  await loadBaseImage(tenant.owner, server)
  builds = buildsOf(tenant.owner, server.id)
  apps = applicationsOf(tenant.owner, server.id)
})

/** A Dockerfile of an application that answers with this text, after some steps. */
const serving = (answer: string, ...steps: string[]): string =>
  [
    'FROM busybox',
    ...steps,
    `RUN mkdir /site && echo "${answer}" >/site/index.html`,
    'CMD exec httpd -f -p "$PORT" -h /site',
  ].join('\n')

const onWorker = (name: string, command: string): Promise<string> =>
  runOnMachine(tenant.owner, server.workers.find((worker) => worker.name === name)?.machine_id ?? '', command)

describe('a build', () => {
  test('makes an image by the artifact’s Dockerfile, which runs on every worker', async () => {
    const build = await builds.make('shop', { Dockerfile: serving('first'), 'src/file': 'x' }, { tag: 'v1' })
    expect(build).toMatchObject({
      status: 'succeeded',
      artifact: 'shop',
      image: 'shop',
      tag: 'v1',
      generated: null,
      digest: expect.stringMatching(/^sha256:/),
      image_state: 'kept',
      operation_id: null,
    })
    const log = await builds.log(build.id)
    expect(log).toContain('building with the artifact’s Dockerfile')
    expect(log).toMatch(/#\d+ \[2\/2\] RUN mkdir \/site/)
    expect(log).toContain(`the image is ${build.digest}`)
    const again = await builds.make(
      'shop',
      { Dockerfile: serving('first'), 'src/file': 'y' },
      { tag: 'again' },
    )
    expect(await builds.log(again.id)).toMatch(/#\d+ CACHED/) // the steps before are kept
    const app = await apps.make({ name: 'shop', image: 'shop', tag: 'v1', replicas: 2 })
    expect((await visit(app.url)).text).toBe('first')
    const deployment = await apps.deployment(app.deployment_id ?? '')
    expect(deployment['build_id']).toBe(build.id)
    for (const { machine_id } of server.workers) {
      const containers = await (await innerEngine(tenant.owner, machine_id)).listContainers()
      expect(containers.map(({ Labels }) => Labels['keelson.deployment'])).toContain(app.deployment_id)
    }
  })

  testDrawn('takes the Dockerfile, the stage, the arguments and the newest artifact of a name', async () => {
    const dockerfile = [
      'FROM busybox AS first',
      'ARG GREETING',
      'RUN echo "greeting is $GREETING"',
      'FROM busybox AS second',
      'RUN echo second',
    ].join('\n')
    await builds.push('parts', { Dockerfile: 'FROM busybox' })
    await builds.push('parts', { 'docker/Dockerfile.web': dockerfile })
    const { id, operation } = await builds.create({
      artifact: 'parts',
      image: 'parts',
      dockerfile: 'docker/Dockerfile.web',
      target: 'first',
      build_args: { GREETING: 'hello' },
    })
    await operation.success()
    const log = await builds.log(id)
    expect(log).toContain('greeting is hello')
    expect(log).not.toContain('RUN echo second')
  })

  test('that fails says why, with its log, and leaves nothing', async () => {
    const artifact_id = await builds.push('broken', {
      Dockerfile: 'FROM busybox\nRUN echo "the cause is here"; exit 7',
    })
    const { id, operation } = await builds.create({ artifact_id, image: 'broken' })
    expect(await operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'build_failed', detail: expect.stringContaining('exit code: 7') },
    })
    expect(await builds.get(id)).toMatchObject({
      status: 'failed',
      status_reason: expect.stringContaining('exit code: 7'),
      image_state: 'leaving',
    })
    expect(await builds.log(id)).toContain('the cause is here')
    expect(await leftovers(id)).toEqual([])
  })

  testDrawn('ends when it is cancelled, with its builder', async () => {
    const artifact_id = await builds.push('slow', { Dockerfile: 'FROM busybox\nRUN echo begun; sleep 3602' })
    const { id, operation } = await builds.create({ artifact_id, image: 'slow' })
    await eventually(async () => (await builds.log(id)).includes('begun'))
    const next = await builds.create({ artifact_id, image: 'slow', timeout_sec: 1 })
    await eventually(async () => (await builds.log(next.id)).includes('waiting for another build'))
    expect(await builds.cancel(id)).toMatchObject({ status: 202 })
    expect((await operation.end()).state).toBe('cancelled')
    expect(await builds.get(id)).toMatchObject({ status: 'cancelled' })
    expect(await builds.log(id)).toContain('the build was cancelled')
    expect(await builds.cancel(id)).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
    expect(await next.operation.end()).toMatchObject({ state: 'failed', error: { code: 'build_timed_out' } })
    expect(await leftovers(id)).toEqual([])
  })

  test('has its secrets only while it runs: not in its log, image, record or history', async () => {
    const secret = 'correct horse battery staple'
    const files = {
      Dockerfile: [
        'FROM busybox',
        'RUN --mount=type=secret,id=TOKEN cat /run/secrets/TOKEN; base64 /run/secrets/TOKEN',
        'RUN --mount=type=secret,id=TOKEN md5sum </run/secrets/TOKEN >/sum; ls /run/secrets',
      ].join('\n'),
    }
    const artifact_id = await builds.push('secret', files)
    const { id, operation } = await builds.create({
      artifact_id,
      image: 'secret',
      secrets: { TOKEN: secret },
    })
    await operation.success()
    const build = await builds.get(id)
    expect(build).toMatchObject({ secret_names: ['TOKEN'] })
    const log = await builds.log(id)
    expect(log).toContain('***')
    const image = `10.77.0.11:5000/secret:${id}`
    const inside = await onWorker(
      'w1',
      `docker history --no-trunc ${image}; docker run --rm ${image} cat /sum`,
    )
    expect(inside).toContain('9cc2ae8a1ba7a93da39b46fc1019c481')
    const { workflow_id } = await operation.now()
    const history = textOfHistory(await decodedHistory(temporalClient(stackSettings()), workflow_id))
    const disk = await onWorker('w1', `grep -rlsF "${secret}" /run /tmp /var/lib/machine || echo nowhere`)
    expect(disk).toBe('nowhere')
    for (const place of [JSON.stringify(build), log, inside, history]) {
      expect(place).not.toContain(secret)
      expect(place).not.toContain(Buffer.from(secret).toString('base64').slice(0, 20))
    }
  })

  testDrawn('removes the oldest cached steps beyond a fifth of the disk, and keeps its own', async () => {
    const stepMib = 250
    const share = ((server.workers[0]?.disk_gib ?? 0) * 1024 ** 3) / 5
    expect(2 * stepMib * 1024 ** 2).toBeGreaterThan(share)
    const cached = async (): Promise<number> => {
      const { BuildCache } = await (await innerEngine(tenant.owner, server.workers[0]?.machine_id ?? '')).df()
      return (BuildCache as { Size: number }[]).reduce((sum, { Size }) => sum + Size, 0)
    }
    let times = 0
    /** Whether a build with a step of this name had it carried out. Its image has nothing of the step’s size. */
    const carriesOut = async (name: string): Promise<boolean> => {
      const step = `RUN echo "${name} is made" | tee /small; dd if=/dev/zero of=/large bs=1M count=${stepMib}`
      // Each build copies to another place, since a cached copy needs nothing of the step.
      const copy = `COPY --from=large /small /small-${times++}`
      const Dockerfile = ['FROM busybox AS large', step, 'FROM busybox', copy].join('\n')
      const { id } = await builds.make(`cached-${name}`, { Dockerfile })
      return new RegExp(`^#\\d+ [\\d.]+ ${name} is made$`, 'm').test(await builds.log(id))
    }
    expect(await carriesOut('first')).toBe(true)
    expect(await cached()).toBeGreaterThanOrEqual(stepMib * 1024 ** 2)
    expect(await carriesOut('second')).toBe(true)
    await eventually(async () => (await cached()) <= share)
    expect(await carriesOut('second')).toBe(false)
    expect(await carriesOut('first')).toBe(true)
  })

  test('streams its log, which ends with it', async () => {
    const Dockerfile = 'FROM busybox\nRUN for i in 1 2 3; do echo "line $i"; sleep 3; done'
    const artifact_id = await builds.push('told', { Dockerfile })
    const { id, operation } = await builds.create({ artifact_id, image: 'told' })
    const path = `/api/v1/deploy-servers/${server.id}/builds/${id}/logs?follow=true`
    const log = await followLog<{ line: string; time: string }>(tenant.owner, path)
    await eventually(() => log.lines.some(({ line }) => line.endsWith('line 1')))
    expect((await builds.get(id)).status).toBe('building')
    await operation.success()
    await eventually(() => log.lines.some(({ line }) => line.startsWith('the image is')))
    await log.stop()
    expect(await builds.log(id, '?lines=1')).toMatch(/^the image is/)
  })

  test.each([
    ['no artifact', { image: 'x' }, 422, 'invalid_input'],
    ['an artifact that is none', { artifact: 'none', image: 'x' }, 422, 'invalid_input'],
    [
      'a Dockerfile outside the artifact',
      { artifact: 'shop', image: 'x', dockerfile: '../x' },
      422,
      'invalid_input',
    ],
    ['an image with a tag', { artifact: 'shop', image: 'x:1' }, 422, 'invalid_input'],
    [
      'a wrong name of a secret',
      { artifact: 'shop', image: 'x', secrets: { 'a b': '' } },
      422,
      'invalid_input',
    ],
  ])('is refused with %s', async (_, body, status, code) => {
    const answer = await tenant.owner.ask('POST', `/api/v1/deploy-servers/${server.id}/builds`, body)
    expect(answer).toMatchObject({ status, body: { code } })
  })
})

describe('the registry', () => {
  const catalog = 'http://10.77.0.11:5000/v2/_catalog'

  test('is reached from the workers, and only with its password', async () => {
    const ask = `printf 'GET /v2/_catalog HTTP/1.0\\r\\n\\r\\n' | socat - TCP4:10.77.0.11:5000 | head -n 1`
    for (const { name } of server.workers) expect(await onWorker(name, ask)).toContain('401 Unauthorized')
    const outside = await fetch(catalog, { signal: AbortSignal.timeout(2_000) }).catch(() => null)
    expect(outside?.headers.get('www-authenticate') ?? null).toBeNull()
  })

  testDrawn(
    'keeps the images of deployments and the last builds, and is made anew with them if it is gone',
    async () => {
      const artifact_id = await builds.push('many', {
        Dockerfile: 'FROM busybox\nARG N\nRUN echo "$N" >/number\nCMD exec httpd -f -p "$PORT" -h /',
      })
      const build = async (N: number): Promise<BuildBody> => {
        const { id, operation } = await builds.create({
          artifact_id,
          image: 'many',
          build_args: { N: String(N) },
        })
        await operation.success()
        return builds.get(id)
      }
      const first = await build(1)
      const app = await apps.make({ image: 'many', tag: 'latest', replicas: 2 })
      const says = async (): Promise<string> => (await visit(app.url, '/number')).text
      const second = await build(2)
      // As a removal leaves them that a running container has stopped, and what somebody based on it.
      await onWorker(
        'w1',
        `docker tag 10.77.0.11:5000/many:${first.id} 10.77.0.11:5000/many:former && docker tag 10.77.0.11:5000/many:former mine:former`,
      )
      for (let n = 3; n <= 5; n++) await build(n)
      await eventually(async () => (await builds.get(second.id)).image_state === 'gone')
      expect((await builds.get(first.id)).image_state).toBe('kept')
      const tags = await onWorker('w1', `docker images --filter label=${builtLabel} --format '{{.Tag}}'`)
      const kept = (await builds.list()).filter((one) => one.image_state === 'kept').map(({ id }) => id)
      expect(new Set(tags.split('\n').filter(Boolean))).toEqual(new Set([...kept, 'former']))
      expect(await onWorker('w1', `docker images -q 10.77.0.11:5000/many:former`)).toBe('')
      await onWorker('w1', 'docker rmi mine:former')
      const blobs =
        'ls /var/lib/machine/docker/volumes/keelson-registry/_data/docker/registry/v2/blobs/sha256/*'
      const stored = await onWorker('w1', blobs)
      expect(stored).toContain(first.digest?.slice(7))
      expect(stored).not.toContain(second.digest?.slice(7))
      expect(await says()).toBe('1')

      const inner = await innerEngine(tenant.owner, server.workers[0]?.machine_id ?? '')
      await inner.getContainer('keelson-registry').remove({ force: true })
      await (await apps.deploy(app.id)).operation.success()
      expect(await says()).toBe('5')
      await (await apps.deploy(app.id, { deployment_id: app.deployment_id })).operation.success()
      expect(await says()).toBe('1')
    },
  )
})

describe('an artifact without a Dockerfile', () => {
  test('is built as files that Caddy serves', async () => {
    await makeCaddy()
    const build = await builds.make('pages', { 'index.html': 'hello pages', '.env': 'SECRET=1' })
    expect(build).toMatchObject({ status: 'succeeded', generated: 'static files' })
    const app = await apps.make({ image: 'pages', tag: 'latest' })
    expect((await visit(app.url)).text).toBe('hello pages')
    expect((await visit(app.url, '/.env')).status).toBe(404)
  })

  test('is refused if nothing is recognised', async () => {
    const artifact_id = await builds.push('nothing', { 'notes.txt': 'x' })
    const { id, operation } = await builds.create({ artifact_id, image: 'nothing' })
    expect(await operation.end()).toMatchObject({
      state: 'failed',
      error: {
        code: 'nothing_recognised',
        detail: expect.stringContaining('there is no package.json'),
      },
    })
    expect(await builds.log(id)).toContain('there is no package.json')
  })
})

/** What a build that has ended has left on the worker. */
async function leftovers(id: string): Promise<string[]> {
  const said = await onWorker(
    'w1',
    `ls /run/keelson-builds | grep ${id}; ps ax | grep -E 'docker[ ]build|sleep[ ]3602'; docker images -q '10.77.0.11:5000/*:${id}'`,
  )
  return said.split('\n').filter(Boolean)
}
