import { beforeAll, expect, test } from '@jest/globals'
import { makeMachine, tokenOf } from '../support/api-clients.ts'
import { makeUser, pathsOn, recordsOf, redisUsers } from '../support/attached.ts'
import { Client, type DeployServerBody } from '../support/client.ts'
import { attachmentsOf } from '../support/clients/attachments.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { insideOf, memoryOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Databases of a deploy server that containers and microVMs use.

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>
let subnet: string

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_instance_type: 'medium' })
  if (hasEngines) await makeDatabaseImages('redis')
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
  const vpc = await makeVpc(tenant)
  subnet = (await makeSubnet(tenant, vpc.id)).id
})

const nothing = { ids: [], paths: [], nics: 0 }

describeEngines('an attached database', () => {
  test('is used by a container and a microVM with a user each, and by no other; a detached or deleted one has nothing left', async () => {
    const { id } = await databases.make()
    const container = await makeUser(tenant, 'containers', subnet)
    const microvm = await makeUser(tenant, 'microvms', subnet)
    const other = await makeUser(tenant, 'containers', subnet)
    for (const user of [container, microvm]) {
      await (await user.attach(id)).operation.success()
      expect(await user.list()).toMatchObject([
        { database_id: id, type: 'redis', config_var: 'DATABASE_URL', status: 'attached', applied: false },
      ])
      const { DATABASE_URL: url = '' } = await user.vars()
      expect(url).toMatch(/^redis:\/\/k_[0-9a-f]{24}:[0-9a-f]{40}@10\.0\.0\.\d+:6379\/0$/)
      // At once from inside, and as a variable after a restart.
      expect(await user.say(`SET ${user.plural} 1`, url)).toBe('+OK')
      await user.restart()
      expect(await user.say(`GET ${user.plural}`)).toBe('$1\n1')
      expect(await user.list()).toMatchObject([{ applied: true }])
    }
    const [mine] = await container.list()
    const [its] = await microvm.list()
    expect(new Set(await redisUsers(inside, id))).toEqual(new Set([mine?.user, its?.user]))
    await eventually(async () => (await container.list())[0]?.reachable)

    // With the least rights.
    for (const command of ['CONFIG GET requirepass', 'ACL USERS', 'SHUTDOWN', 'REPLICAOF 10.0.0.9 1'])
      expect(await container.say(command)).toContain('NOPERM')
    // No other member gets through, not even with the URL of one that does.
    const { DATABASE_URL: url = '' } = await container.vars()
    for (const one of [url, (await microvm.vars())['DATABASE_URL'] ?? ''])
      expect(await other.say('PING', one)).toBe('')
    expect(await container.say('PING', url)).toBe('+PONG')

    const { ids } = await recordsOf(tenant, container.id)
    expect(await pathsOn(container.host_id, ids)).toEqual(ids)
    await (await container.detach(id)).operation.success()
    expect(await container.list()).toEqual([])
    expect(await container.vars()).toEqual({})
    expect(await redisUsers(inside, id)).toEqual([its?.user])
    expect(await pathsOn(container.host_id, ids)).toEqual([])
    expect(await recordsOf(tenant, container.id)).toEqual(nothing)
    expect(await container.say('PING', url)).toBe('')
    expect(await microvm.say('GET containers')).toBe('$1\n1')

    const { ids: left } = await recordsOf(tenant, microvm.id)
    await microvm.delete()
    await eventually(async () => (await redisUsers(inside, id)).length === 0)
    await eventually(async () => (await pathsOn(microvm.host_id, left)).length === 0)
    expect(await recordsOf(tenant, microvm.id)).toEqual(nothing)
    await container.delete()
    await other.delete()
    await (await databases.delete(id)).operation.success()
  })

  test('is refused where it could not work, and keeps its config var from other changes', async () => {
    const { id } = await databases.make()
    const without = await makeUser(tenant, 'containers', subnet, { nics: [] })
    expect(await without.ask(id)).toMatchObject({ status: 409, body: { code: 'no_nic' } })
    const user = await makeUser(tenant, 'containers', subnet, { config_vars: { DATABASE_URL: 'mine' } })
    expect(await user.ask(id)).toMatchObject({ status: 409, body: { code: 'config_var_taken' } })
    expect(await user.ask(server.id)).toMatchObject({ status: 404 })
    const stranger = await makeTenant()
    expect(await attachmentsOf(stranger.owner, 'containers', user.id).ask(id)).toMatchObject({ status: 404 })
    const theirs = await stranger.containers.make()
    expect(await attachmentsOf(stranger.owner, 'containers', theirs.id).ask(id)).toMatchObject({
      status: 404,
      body: { detail: expect.stringContaining('database') },
    })

    await (await user.attach(id, { config_var: 'CACHE_URL' })).operation.success()
    const { CACHE_URL: url = '' } = await user.vars()
    const viewer = await tenant.user('viewer')
    expect(await attachmentsOf(viewer, 'containers', user.id).vars()).toEqual({
      DATABASE_URL: null,
      CACHE_URL: null,
    })
    const again = { config_var: 'OTHER_URL' }
    expect(await user.ask(id, again)).toMatchObject({ status: 409, body: { code: 'already_attached' } })
    expect(await user.setVars({ CACHE_URL: 'other' })).toMatchObject({
      status: 409,
      body: { code: 'config_var_taken' },
    })
    for (const vars of [{ A: '1', CACHE_URL: url }, { A: '1' }])
      expect(await user.setVars(vars)).toMatchObject({
        status: 200,
        body: { config_vars: { A: '1', CACHE_URL: url } },
      })
    expect(await user.vars()).toEqual({ A: '1', CACHE_URL: url })
    const { nics } = await tenant.owner.get<{ nics: { id: string }[] }>(`/api/v1/containers/${user.id}`)
    expect(
      await tenant.owner.ask('DELETE', `/api/v1/containers/${user.id}/nics/${nics[0]?.id}`),
    ).toMatchObject({
      status: 409,
      body: { code: 'nic_in_use' },
    })

    await eventually(async () => (await user.list())[0]?.reachable)
    await (await databases.stop(id)).operation.success()
    await eventually(async () => (await user.list())[0]?.reachable === false)
    const next = await makeUser(tenant, 'containers', subnet)
    expect(await next.ask(id)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', state: 'stopped' },
    })
    expect(await recordsOf(tenant, next.id)).toEqual(nothing)
    // Detached while it is stopped: the user is gone when it is back.
    await (await user.detach(id)).operation.success()
    await (await databases.start(id)).operation.success()
    expect(await redisUsers(inside, id)).toEqual([])
    expect(
      await tenant.owner.ask('DELETE', `/api/v1/containers/${user.id}/attachments/database/${id}`),
    ).toMatchObject({
      status: 404,
    })
    for (const one of [without, user, next]) await one.delete()
    await (await databases.delete(id)).operation.success()
  })

  test.each(['containers', 'microvms'] as const)(
    'of %s shows its URL only to callers with their permission for secrets',
    async (plural) => {
      const { id } = await databases.make()
      const user = await makeUser(tenant, plural, subnet, { config_vars: { OWN: 'mine' } })
      await (await user.attach(id)).operation.success()
      const { DATABASE_URL: url = '' } = await user.vars()
      expect(url).toMatch(/^redis:/)
      const callerWith = async (...actions: string[]) => {
        const machine = await makeMachine(
          tenant.owner,
          actions.map((action) => (action.includes(':') ? action : `${plural}:${action}`)),
        )
        return attachmentsOf(new Client(await tokenOf(machine)), plural, user.id)
      }
      const all = { OWN: 'mine', DATABASE_URL: url }
      const own = { OWN: 'mine', DATABASE_URL: null }
      const names = { OWN: null, DATABASE_URL: null }
      const others = ['containers', 'microvms', 'vms'].filter((one) => one !== plural)
      for (const [actions, seen] of [
        [['read'], names],
        [['read', ...others.map((one) => `${one}:secrets`)], names],
        [['read', 'update'], own],
        [['read', 'update', 'deploy_servers:manage'], own],
        [['read', 'secrets'], all],
        [['read', 'update', 'secrets'], all],
      ] as const)
        expect([actions, await (await callerWith(...actions)).vars()]).toEqual([actions, seen])
      expect(await attachmentsOf(await tenant.user('developer'), plural, user.id).vars()).toEqual(all)

      // Nor does the answer to a change show it.
      for (const [actions, shown] of [
        [['update'], null],
        [['update', 'secrets'], url],
      ] as const)
        expect(await (await callerWith(...actions)).setVars({ OWN: 'other' })).toMatchObject({
          status: 200,
          body: { config_vars: { OWN: 'other', DATABASE_URL: shown } },
        })
      await user.delete()
      await (await databases.delete(id)).operation.success()
    },
  )

  testDrawn(
    'has its users when it has started again, and when its engine was killed; its deletion detaches it',
    async () => {
      const { id } = await databases.make()
      const user = await makeUser(tenant, 'containers', subnet)
      await (await user.attach(id)).operation.success()
      const { DATABASE_URL: url } = await user.vars()
      const ping = () => user.say('PING', url)
      expect(await ping()).toBe('+PONG')
      await (await databases.restart(id)).operation.success()
      expect(await ping()).toBe('+PONG')
      await (await databases.stop(id)).operation.success()
      await (await databases.start(id)).operation.success()
      expect(await ping()).toBe('+PONG')
      const [killed] = await inside.containers(id)
      await inside.run(`docker kill ${killed}`)
      await eventually(async () => (await ping()) === '+PONG')

      const { ids } = await recordsOf(tenant, user.id)
      await (await databases.delete(id)).operation.success()
      expect([await user.list(), await user.vars()]).toEqual([[], {}])
      expect(await recordsOf(tenant, user.id)).toEqual(nothing)
      expect(await pathsOn(user.host_id, ids)).toEqual([])
      expect(await tenant.containers.get(user.id)).toMatchObject({ pending_changes: ['config_vars'] })
      await user.delete()
    },
  )

  testDrawn('of PostgreSQL has users that share their tables, which stay when a user goes', async () => {
    await makeDatabaseImages('postgresql')
    const { id } = await databases.make({ type: 'postgresql', memory_mib: 96 })
    await inside.write(id, 'postgresql')
    // The image's own entrypoint would make a database.
    const psql = { image: 'keelson/test-postgresql:17.6', entrypoint: ['sleep'], command: ['3600'] }
    const [one, two] = [
      await makeUser(tenant, 'containers', subnet, psql),
      await makeUser(tenant, 'containers', subnet, psql),
    ]
    for (const user of [one, two]) {
      await (await user.attach(id)).operation.success()
      await user.restart()
    }
    const ask = (user: typeof one, statement: string) =>
      user.run(`psql "$DATABASE_URL" -tAqc "${statement}" 2>&1 || true`)
    expect(await ask(one, 'SELECT count(*) FROM rows')).toBe(String(rows))
    expect(
      await ask(one, 'CREATE TABLE notes (id serial, text text); INSERT INTO notes (text) VALUES (1)'),
    ).toBe('')
    expect(await ask(two, 'INSERT INTO notes (text) VALUES (2); SELECT count(*) FROM notes')).toBe('2')
    for (const statement of [
      'CREATE ROLE other',
      'SELECT * FROM pg_authid',
      'DROP TABLE rows',
      'CREATE DATABASE other',
    ])
      expect(await ask(one, statement)).toMatch(/permission denied|must be owner/)
    const roles = () =>
      inside.runIn(
        id,
        'psql -h /tmp -U "$POSTGRES_USER" -d "$POSTGRES_DB" -tAc "SELECT rolname FROM pg_roles"',
      )
    const user = (await one.list())[0]?.user ?? ''
    expect(await roles()).toContain(user)
    // Its own, in another database: it keeps the user there until it is the group's.
    const elsewhere = 'RESET ROLE; SELECT lo_create(4711)'
    expect(
      await one.run(`PGOPTIONS= psql "\${DATABASE_URL%/*}/postgres" -tAqc "${elsewhere}" 2>&1 || true`),
    ).toBe('4711')
    await (await one.detach(id)).operation.success()
    expect(await roles()).not.toContain(user)
    expect(await ask(two, 'INSERT INTO notes (text) VALUES (3); SELECT count(*) FROM notes')).toBe('3')
    for (const each of [one, two]) await each.delete()
    await (await databases.delete(id)).operation.success()
  })

  testDrawn('of MariaDB has users with rights in its own database alone', async () => {
    await makeDatabaseImages('mariadb')
    const { id } = await databases.make({ type: 'mariadb', memory_mib: 160 })
    const container = await makeUser(tenant, 'containers', subnet)
    await (await container.attach(id)).operation.success()
    const { DATABASE_URL: url = '' } = await container.vars()
    const [, user = '', password = '', address = ''] =
      /^mysql:\/\/(\w+):(\w+)@([\d.]+):3306\/app$/.exec(url) ?? []
    // The engine greets whoever reaches it.
    expect(await container.run(`nc -w 2 ${address} 3306 </dev/null | tr -cd '[:alpha:]'`)).toContain(
      'MariaDB',
    )
    const client = `MYSQL_PWD=${password} mariadb -h 127.0.0.1 -u ${user}`
    const ask = (statement: string) => inside.runIn(id, `${client} app -Ne "${statement}" 2>&1 || true`)
    expect(
      await ask('CREATE TABLE notes (id int); INSERT INTO notes VALUES (1); SELECT count(*) FROM notes'),
    ).toBe('1')
    for (const statement of ['CREATE USER other', 'SELECT * FROM mysql.user', 'CREATE DATABASE other'])
      expect(await ask(statement)).toContain('denied')
    await (await container.detach(id)).operation.success()
    expect(await ask('SELECT 1')).toContain('Access denied')
    expect(
      await inside.runIn(
        id,
        'MYSQL_PWD=$MARIADB_PASSWORD mariadb -h 127.0.0.1 -u $MARIADB_USER app -Ne "SELECT count(*) FROM notes"',
      ),
    ).toBe('1')
    await container.delete()
    await (await databases.delete(id)).operation.success()
  })

  testDrawn('of MongoDB has users that read and write its own database alone', async () => {
    await makeDatabaseImages('mongodb')
    const { id } = await databases.make({ type: 'mongodb', memory_mib: memoryOf.mongodb })
    await inside.write(id, 'mongodb')
    const container = await makeUser(tenant, 'containers', subnet)
    await (await container.attach(id)).operation.success()
    await eventually(async () => (await container.list())[0]?.reachable)
    const { DATABASE_URL: url = '' } = await container.vars()
    expect(url).toMatch(
      /^mongodb:\/\/k_[0-9a-f]{24}:[0-9a-f]{40}@10\.0\.0\.\d+:27017\/app\?authSource=admin$/,
    )
    const local = url.replace(/@[\d.]+:/, '@127.0.0.1:')
    const ask = (work: string) =>
      inside.runIn(
        id,
        `node -e "const { MongoClient } = require('/opt/driver/node_modules/mongodb'); const client = new MongoClient('${local}'); client.${work}.then(String, String).then((said) => { console.log(said); process.exit() })"`,
      )
    expect(await ask("db().collection('rows').countDocuments({})")).toBe(String(rows))
    expect(await ask("db().collection('notes').insertOne({}).then(() => 'written')")).toBe('written')
    for (const work of [
      "db('other').collection('notes').insertOne({})",
      "db('admin').command({ createUser: 'other', pwd: 'x', roles: ['root'] })",
      "db('admin').command({ usersInfo: 1 })",
    ])
      expect(await ask(work)).toContain('not authorized')
    // Made again by the next start, which the host may do twice.
    await (await databases.restart(id)).operation.success()
    expect(await ask("db().collection('notes').countDocuments({})")).toBe('1')
    await (await container.detach(id)).operation.success()
    expect(await ask("db().collection('notes').countDocuments({})")).toContain('Authentication failed')
    expect(await inside.count(id, 'mongodb')).toBe(rows)
    await container.delete()
    await (await databases.delete(id)).operation.success()
  })

  testDrawn('is detached when its deploy server is deleted', async () => {
    const { id } = await databases.make()
    const user = await makeUser(tenant, 'containers', subnet)
    await (await user.attach(id)).operation.success()
    const { ids } = await recordsOf(tenant, user.id)
    await (await tenant.owner.deployServers.delete(server.id)).operation.success()
    expect([await user.list(), await user.vars()]).toEqual([[], {}])
    expect(await recordsOf(tenant, user.id)).toEqual(nothing)
    expect(await pathsOn(user.host_id, ids)).toEqual([])
    await user.delete()
  })
})
