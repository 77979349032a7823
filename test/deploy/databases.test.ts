import { beforeAll, describe, expect, test } from '@jest/globals'
import { Database } from '../../models/deploy/databases.ts'
import { KeptVolumes } from '../../models/deploy/kept-volumes.ts'
import { Storage } from '../../models/deploy/storages.ts'
import { writeTo } from '../support/acknowledged.ts'
import type { DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { inPostgresql, insideOf, memoryOf, rows, type Written } from '../support/database-insides.ts'
import { hasClickHouse, hasEngines, makeDatabaseImages, writtenTypes } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { askOutside, askPlainly } from '../support/public-clients.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Databases of one deploy server, on engines that can be had here (test/support/database-images.ts).

const passwordOf = (url: string | null) => /:(\w+)@/.exec(url ?? '')?.[1]

/** The protocols of these engines begin without TLS, and the client asks for it: the engine ends it itself. */
const endsTls = (type: Written) => type === 'postgresql' || type === 'mariadb'

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_instance_type: 'medium' })
  if (hasEngines) await makeDatabaseImages('redis') // of most tests
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
})

/** The limits of a database's container: CPUs in billionths, and memory in bytes. */
const limitsOf = (id: string): Promise<string> =>
  inside.run(
    `docker inspect -f '{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}' $(docker ps -qf label=keelson.database=${id})`,
  )

/** What the deploy server's load balancer has for published databases. */
async function outsideOf() {
  const { listeners } = await tenant.owner.loadBalancers.get(server.lb_id)
  const { items } = await tenant.owner.get<{ items: { name: string }[] }>('/api/v1/certificates')
  return { ports: listeners.map(({ port }) => port), certificates: items.map(({ name }) => name) }
}

describeEngines('a database', () => {
  test.each(sampled(writtenTypes, 2))(
    'of %s keeps its rows when it restarts, and when it stops and starts',
    async (type) => {
      await makeDatabaseImages(type)
      const { id, status, connection_string } = await databases.make({ type, memory_mib: memoryOf[type] })
      expect(status).toBe('running')
      expect(connection_string).toMatch(/^\w+:\/\/\w*:\w{40}@10\.77\.0\.11:2\d{4}\//)
      await inside.write(id, type)

      await (await databases.restart(id)).operation.success()
      expect(await inside.count(id, type)).toBe(rows)

      await (await databases.stop(id)).operation.success()
      expect(await databases.get(id)).toMatchObject({ status: 'stopped', connection_string })
      expect(await inside.containers(id)).toEqual([])
      await (await databases.start(id)).operation.success()
      expect(await databases.get(id)).toMatchObject({ status: 'running', connection_string })
      expect(await inside.count(id, type)).toBe(rows)

      await (await databases.delete(id)).operation.success()
      expect([await inside.containers(id), await inside.volumes(id)]).toEqual([[], []])
      expect((await databases.list()).map((one) => one.id)).not.toContain(id)
      expect(await databases.keptVolumes()).toEqual([])
    },
  )

  test.each(sampled(writtenTypes, 1))(
    'of %s restarts under load without the loss of an acknowledged write',
    async (type) => {
      await makeDatabaseImages(type)
      const database = await databases.make({ type, memory_mib: memoryOf[type] })
      const writer = await writeTo(inside, database, type)
      await writer.goesOn(100)
      await (await databases.restart(database.id)).operation.success()
      await writer.goesOn(100)
      const { acknowledged, lost } = await writer.end()
      expect(acknowledged).toBeGreaterThanOrEqual(200)
      expect(lost).toEqual([])
      await (await databases.delete(database.id)).operation.success()
    },
  )

  test.each(sampled(writtenTypes, 1))(
    'of %s keeps the files of a storage that was added when it restarts',
    async (type) => {
      await makeDatabaseImages(type)
      const { id } = await databases.make({ type, memory_mib: memoryOf[type] })
      await inside.write(id, type)
      const { status } = await databases.addStorage(id, '/exports')
      expect(status).toBe(201)
      expect(await databases.get(id)).toMatchObject({ pending_changes: true })
      await (await databases.restart(id)).operation.success()
      await inside.runIn(id, 'echo kept >/exports/file')
      await (await databases.restart(id)).operation.success()
      expect(await inside.runIn(id, 'cat /exports/file')).toBe('kept')
      expect(await inside.volumes(id)).toHaveLength(2)
      expect(await inside.count(id, type)).toBe(rows)
      await (await databases.delete(id)).operation.success()
      expect(await inside.volumes(id)).toEqual([])
    },
  )

  test('is reached by containers of the deploy server with its password alone', async () => {
    const { id, connection_string: url } = await databases.make()
    const client = 'docker run --rm keelson/test-redis:8.2.1 redis-cli'
    expect(await inside.run(`${client} -u ${url} ping`)).toMatch(/^PONG$/m)
    const without = String(url).replace(/:\w+@/, ':wrong@')
    expect(await inside.run(`${client} -u ${without} ping`)).toMatch(/NOAUTH|WRONGPASS/)
    await (await databases.delete(id)).operation.success()
  })

  test.each(
    sampled<[Written, string]>(
      [
        ['redis', '8.0.3'],
        ['postgresql', '17.5'],
      ],
      1,
    ),
  )(
    'of %s leaves its volume when it is deleted, and another one takes it with its rows and its password',
    async (type, version) => {
      await makeDatabaseImages(type)
      const of = { type, version, memory_mib: memoryOf[type] }
      const { id, name, connection_string } = await databases.make({ name: 'ledger', ...of })
      await inside.write(id, type)
      await (await databases.delete(id, '')).operation.success()
      expect(await inside.containers(id)).toEqual([])
      expect(await databases.keptVolumes()).toMatchObject([
        { id, name, type, version, worker: 'w1', status: 'kept' },
      ])
      const replace = `/api/v1/deploy-servers/${server.id}/machines/w1/replace`
      expect(await tenant.owner.ask('POST', replace)).toMatchObject({
        status: 409,
        body: { code: 'storage_on_worker', detail: expect.stringContaining('deleted database ledger') },
      })
      const wrong = await databases.ask({ name: 'x', type: 'mariadb', volume_id: id })
      expect(wrong).toMatchObject({ status: 422, body: { errors: [{ pointer: '/type' }] } })

      const next = await databases.make({
        name: 'ledger',
        type,
        memory_mib: memoryOf[type],
        volume_id: id,
      })
      expect([next.id, next.version]).toEqual([id, version])
      expect(passwordOf(next.connection_string)).toBe(passwordOf(connection_string))
      expect(await inside.count(id, type)).toBe(rows)
      expect(await databases.keptVolumes()).toEqual([])

      await (await databases.delete(id, '')).operation.success()
      await (await databases.destroyKept(id)).operation.success()
      expect([await inside.volumes(id), await databases.keptVolumes()]).toEqual([[], []])
    },
  )

  testDrawn('gets its configuration, size and a newer version by a restart', async () => {
    const { id } = await databases.make({ version: '8.0.3', memory_mib: memoryOf.redis })
    const changes = {
      version: '8.2.1',
      cpu_cores: 0.25,
      memory_mib: 48,
      configuration: { 'maxmemory-policy': 'allkeys-lru' },
    }
    expect(await limitsOf(id)).toBe(`${0.5 * 1e9} ${memoryOf.redis * 1024 ** 2}`)
    expect(await databases.change(id, changes)).toMatchObject({
      status: 200,
      body: { ...changes, pending_changes: true },
    })
    expect(await inside.runIn(id, 'redis-cli config get maxmemory-policy')).toContain('noeviction')
    await (await databases.restart(id)).operation.success()
    expect(await databases.get(id)).toMatchObject({ pending_changes: false, upgrades: [] })
    expect(await limitsOf(id)).toBe(`${0.25 * 1e9} ${48 * 1024 ** 2}`)
    expect(await inside.runIn(id, 'redis-cli config get maxmemory-policy')).toContain('allkeys-lru')
    expect(await inside.runIn(id, 'redis-cli config get maxmemory')).toContain(String(36 * 1024 ** 2))
    const back = await databases.change(id, { version: '8.0.3' })
    expect(back).toMatchObject({ status: 422, body: { errors: [{ pointer: '/version' }] } })
    await (await databases.delete(id)).operation.success()
  })

  test.each(
    sampled<[Written, string, string]>(
      [
        ['redis', '8.0.3', '8.2.1'],
        ['mariadb', '11.8.2', '11.8.3'],
        ['mongodb', '8.0.10', '8.0.12'],
        ...(hasClickHouse ? ([['clickhouse', '25.3.5.42', '25.3.6.56']] as [Written, string, string][]) : []),
      ],
      1,
    ),
  )('of %s takes its rows from %s to %s by a restart', async (type, version, next) => {
    await makeDatabaseImages(type)
    const { id } = await databases.make({ type, version, memory_mib: memoryOf[type] })
    await inside.write(id, type)
    expect(await databases.change(id, { version: next })).toMatchObject({ status: 200 })
    await (await databases.restart(id)).operation.success()
    expect(await databases.get(id)).toMatchObject({ pending_changes: false, version: next })
    expect(
      await inside.run(`docker inspect -f '{{.Config.Image}}' $(docker ps -qf label=keelson.database=${id})`),
    ).toContain(`:${next}`)
    expect(await inside.count(id, type)).toBe(rows)
    await (await databases.delete(id)).operation.success()
  })

  testDrawn(
    'of PostgreSQL gets its configuration and a newer version by a restart, with its rows',
    async () => {
      await makeDatabaseImages('postgresql')
      const { id } = await databases.make({ type: 'postgresql', version: '17.5', memory_mib: 96 })
      await inside.write(id, 'postgresql')
      const changes = { version: '17.6', configuration: { max_connections: 50 } }
      expect(await databases.change(id, changes)).toMatchObject({ status: 200, body: changes })
      await (await databases.restart(id)).operation.success()
      expect(await databases.get(id)).toMatchObject({ pending_changes: false, version: '17.6', upgrades: [] })
      expect(await inside.runIn(id, inPostgresql('SHOW max_connections'))).toBe('50')
      expect(await inside.count(id, 'postgresql')).toBe(rows)
      await (await databases.delete(id)).operation.success()
    },
  )

  testDrawn('goes back to its former storages if it does not start with new ones', async () => {
    const { id } = await databases.make()
    await inside.write(id, 'redis')
    const [data] = await databases.storages(id)
    expect(await databases.removeStorage(id, data?.id ?? '')).toMatchObject({
      status: 409,
      body: { code: 'storage_essential' },
    })
    // Nothing can be mounted below a file.
    const { body } = await databases.addStorage(id, '/usr/bin/redis-cli/x')
    const { operation } = await databases.restart(id)
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'service_failed' } })
    expect(await databases.get(id)).toMatchObject({ status: 'running', pending_changes: true })
    expect(await inside.count(id, 'redis')).toBe(rows)

    await databases.removeStorage(id, String(body['id']))
    await (await databases.restart(id)).operation.success()
    expect(await databases.get(id)).toMatchObject({ status: 'running', pending_changes: false })
    expect(await inside.volumes(id)).toHaveLength(1)
    await (await databases.delete(id)).operation.success()
  })

  testDrawn('is started again with its rows if its engine is killed, and its activity says so', async () => {
    const { id } = await databases.make()
    await inside.write(id, 'redis')
    const [killed] = await inside.containers(id)
    await inside.run(`docker kill ${killed}`)
    await eventually(async () => {
      const [next] = await inside.containers(id)
      return next && next !== killed && (await inside.count(id, 'redis')) === rows
    })
    await eventually(async () => (await databases.activity(id)).some(({ kind }) => kind === 'database_ended'))
    await (await databases.delete(id)).operation.success()
  })

  test.each([
    ...sampled(writtenTypes.filter(endsTls), 1),
    ...sampled(
      writtenTypes.filter((type) => !endsTls(type)),
      1,
    ),
  ])(
    'of %s is reached from outside by TLS while it is published, and without TLS only where the engine ends it',
    async (type) => {
      await makeDatabaseImages(type)
      const { id, public_port, public_connection_string } = await databases.make({
        type,
        memory_mib: memoryOf[type],
      })
      expect([public_port, public_connection_string]).toEqual([null, null])
      await (await databases.publish(id)).operation.success()
      const database = await databases.get(id)
      expect(database).toMatchObject({ status: 'running', public_host: expect.any(String) })
      expect(await askOutside(database)).toMatch(/1 by TLS$/)
      const served = endsTls(type) ? 'plain' : 'refused'
      expect(await askPlainly(database).catch(() => 'refused')).toBe(served)
      const other = await databases.make()
      await expect(askOutside(database, { ca: other.tls_certificate_pem })).rejects.toThrow(/certificate/)

      await (await databases.restart(id)).operation.success()
      expect(await askOutside(await databases.get(id))).toMatch(/1 by TLS$/)
      // Nothing can be mounted below a file, so it goes back to its former storages.
      const { body } = await databases.addStorage(id, '/etc/passwd/x')
      expect(await (await databases.restart(id)).operation.end()).toMatchObject({ state: 'failed' })
      expect(await askOutside(await databases.get(id))).toMatch(/1 by TLS$/)
      await databases.removeStorage(id, String(body['id']))
      await (await databases.unpublish(id)).operation.success()
      await expect(askOutside(database)).rejects.toThrow()
      expect(await databases.get(id)).toMatchObject({ public_port: null, public_connection_string: null })

      await (await databases.publish(id)).operation.success()
      await (await databases.delete(id)).operation.success()
      await (await databases.delete(other.id)).operation.success()
      expect(await outsideOf()).toEqual({ ports: [80], certificates: [] })
    },
  )

  test('shows its output, and its connection string to no one who may not manage it', async () => {
    const { id } = await databases.make()
    expect(await databases.logs(id)).toContain('Ready to accept connections')
    await eventually(async () => (await databases.metrics(id)).some(({ points }) => points.length > 0))
    const viewer = databasesOf(await tenant.user('viewer'), server.id)
    expect(await viewer.get(id)).toMatchObject({ status: 'running', connection_string: null })
    expect(await viewer.ask({ name: 'mine', type: 'redis' })).toMatchObject({ status: 403 })
    const other = databasesOf((await makeTenant()).owner, server.id)
    expect(await other.ask({ name: 'mine', type: 'redis' })).toMatchObject({ status: 404 })
    await (await databases.delete(id)).operation.success()
  })
})

describe('a database is refused', () => {
  test.each([
    ['keydb', 'eqalpha/keydb'],
    ['mysql', 'mysql'],
    ['dragonfly', 'docker.dragonflydb.io/dragonflydb/dragonfly'],
  ])('with an image of %s that cannot be had: it says so, and can be deleted', async (type, image) => {
    const { id, operation } = await databases.create({ type, memory_mib: 512 })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'image_unavailable' } })
    expect(await databases.get(id)).toMatchObject({
      status: 'error',
      status_reason: expect.stringContaining(`${image}:`),
    })
    await (await databases.delete(id, '')).operation.success()
    expect(await databases.keptVolumes()).toEqual([]) // nothing was ever in it
  })

  test('while it is created by its deletion, which leaves nothing', async () => {
    const { id, operation } = await databases.create({ type: 'keydb' })
    await (await databases.delete(id)).operation.success()
    expect(await operation.end()).toMatchObject({ state: 'cancelled', error: { code: 'superseded' } })
    expect([await inside.containers(id), await inside.volumes(id)]).toEqual([[], []])
  })

  test.each([
    ['no type', { type: undefined }, 422, '/type'],
    ['a version that is not offered', { version: '1.0' }, 422, '/version'],
    ['too little memory', { type: 'postgresql', memory_mib: 64 }, 422, '/memory_mib'],
    [
      'an unknown setting',
      { configuration: { 'rename-command': 'x' } },
      422,
      '/configuration/rename-command',
    ],
    ['a wrong value', { configuration: { appendfsync: 'never' } }, 422, '/configuration/appendfsync'],
  ])('with %s', async (_, over, status, pointer) => {
    const answer = await databases.ask({ name: 'refused', type: 'redis', ...over })
    expect(answer).toMatchObject({ status, body: { errors: [{ pointer }] } })
  })

  test('with more memory than a worker has', async () => {
    const { id, operation } = await databases.create({ memory_mib: 4096 })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'no_room' } })
    await (await databases.delete(id)).operation.success()
  })
})

// Last, because the deploy server is gone then.
test('databases and kept volumes end with their deploy server', async () => {
  await databases.create({ type: 'keydb' })
  if (hasEngines) {
    const { id } = await databases.make()
    await (await databases.delete(id, '')).operation.success()
    await databases.make()
  }
  await (await tenant.owner.deployServers.delete(server.id)).operation.success()
  const { id: tenant_id } = tenant
  const left = [
    Database.countDocuments({ tenant_id }),
    KeptVolumes.countDocuments({ tenant_id }),
    Storage.countDocuments({ tenant_id }),
  ]
  expect(await Promise.all(left)).toEqual([0, 0, 0])
  expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
})
