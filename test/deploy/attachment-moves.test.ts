import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { makeUser, pathsOn, recordsOf } from '../support/attached.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeHosts, first, hosts, second, third } from '../support/describe-hosts.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { expectNoNetworks } from '../support/host-networks.ts'
import { closeFurther, open, type TestHost } from '../support/hosts.ts'
import { platform } from '../support/platform.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Attached databases, when the instance and the database are on different hosts.

let tenant: TestTenant
let subnet: string
let database: string

beforeAll(async () => {
  if (!hasEngines) return
  tenant = await makeTenant({ max_vpcs: 10 })
  await open([first])
  const server = await tenant.owner.deployServers.make()
  await makeDatabaseImages('redis')
  database = (await databasesOf(tenant.owner, server.id).make()).id
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
})

async function attachedOn(host: TestHost) {
  await open([host])
  const user = await makeUser(tenant, 'containers', subnet)
  expect(user.host_id).toBe(host.id)
  await (await user.attach(database)).operation.success()
  const { DATABASE_URL: url = '' } = await user.vars()
  const { ids } = await recordsOf(tenant, user.id)
  return { ...user, url, ids, ping: () => user.say('PING', url) }
}

describeHosts('the path of an attached database', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
    for (const host of hosts) await eventually(() => expectNoNetworks(host, tenant.id))
  })

  test('leads to another host, and follows its container to one', async () => {
    if (!hasEngines) return
    const user = await attachedOn(second)
    expect(await user.ping()).toBe('+PONG')
    for (const [from, to] of [
      [second, third],
      [third, first],
    ] as const) {
      await open([to])
      await (await tenant.containers.reschedule(user.id)).operation.success()
      expect(await user.ping()).toBe('+PONG')
      expect([await pathsOn(from.id, user.ids), await pathsOn(to.id, user.ids)]).toEqual([[], user.ids])
      expect((await user.vars())['DATABASE_URL']).toBe(user.url)
    }
    await user.delete()
  })

  testDrawn('is on its new host alone when the former one was lost and is back', async () => {
    if (!hasEngines) return
    const user = await attachedOn(second)
    await platform.kill(second.roles.host)
    await eventually(async () => (await tenant.containers.get(user.id)).status === 'unreachable')
    await open([third])
    await (await tenant.containers.reschedule(user.id)).operation.success()
    await eventually(async () => (await user.ping()) === '+PONG')
    await platform.start(second.roles.host)
    await eventually(async () => (await pathsOn(second.id, user.ids)).length === 0)
    expect(await pathsOn(third.id, user.ids)).toEqual(user.ids)
    await eventually(async () => (await user.ping()) === '+PONG')
    await user.delete()
  })
})
