import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { makeInstanceActivities } from '../../activities/compute/instances.ts'
import { newId } from '../../lib/ids.ts'
import { Host } from '../../models/compute/hosts.ts'
import { place } from '../../models/compute/placement.ts'
import { release, Reservation, reserve } from '../../models/compute/reservations.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import type { Client, ContainerBody, Json, Operation, OperationBody } from '../support/client.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, first, hosts, second, third } from '../support/describe-hosts.ts'
import { closeFurther, open, placesOf, type TestHost } from '../support/hosts.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { publishedPort } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Several hosts: placement, moves, loss and return. The further hosts are network namespaces, which need root.

let home: TestTenant
let operator: Client
let tenant: TestTenant

beforeAll(async () => {
  home = await makeTenant()
  operator = await home.user('operator')
  tenant = await makeTenant()
})

const hostPath = ({ id }: TestHost): string => `/api/v1/platform/hosts/${id}`

/** Expects one running container on that host only, as recorded. Hosts remove leftovers after their next reports. */
async function expectAt(
  id: string,
  host: TestHost,
  state: 'running' | 'exited' = 'running',
): Promise<ContainerBody> {
  await eventually(async () => {
    const places = await placesOf(id)
    return places.length === 1 && places[0]?.host === host.id && places[0].state === state
  })
  const container = await tenant.containers.get(id)
  expect(container).toMatchObject({ host_id: host.id, operation_id: null })
  const held = await Reservation.findById(id).setOptions(everyTenant).lean()
  expect(held).toMatchObject({ host_id: host.id, target_host_id: null })
  return container
}

/** The hosts' records equal the sums of the reservations. */
async function expectSums(): Promise<void> {
  for (const { id } of hosts) {
    const held = await Reservation.find({ $or: [{ host_id: id }, { target_host_id: id }] })
      .setOptions(everyTenant)
      .lean()
    const sum = (of: (one: { cpu_milli: number; memory_mib: number }) => number) =>
      held.reduce((all, one) => all + of(one), 0)
    expect(await operator.get(`/api/v1/platform/hosts/${id}`)).toMatchObject({
      reserved: { cpu_milli: sum((one) => one.cpu_milli), memory_mib: sum((one) => one.memory_mib) },
    })
  }
}

const makeOn = async (host: TestHost, over: Json = {}): Promise<ContainerBody> => {
  await open([host])
  const container = await tenant.containers.make(over)
  await open(hosts)
  expect(container.host_id).toBe(host.id)
  return container
}

/** The child operations of an evacuation, as operators list them. */
const childrenOf = async (operation: Operation): Promise<OperationBody[]> =>
  (
    await operator.get<{ items: OperationBody[] }>(
      `/api/v1/platform/operations?parent_id=${operation.id}&limit=100`,
    )
  ).items

const evacuating = async (): Promise<Operation> => {
  const { operation } = await operator.begin('POST', `${hostPath(third)}/evacuate`)
  await eventually(async () => (await childrenOf(operation)).some(({ step }) => step !== null))
  return operation
}

describeHosts('placement', () => {
  test('keeps containers with equal tags on different hosts', async () => {
    await open(hosts)
    const tags = { app: newId() }
    const made = []
    for (let i = 0; i < 3; i++) made.push(await tenant.containers.make({ tags }))
    expect(new Set(made.map(({ host_id }) => host_id)).size).toBe(3)
  })

  test('keeps what is placed at once on different hosts', async () => {
    await open(hosts)
    const ids = hosts.map(newId)
    for (const id of ids) await reserve(id, tenant.id, { cpu_milli: 100, memory_mib: 16, disk_gib: 0 })
    try {
      const places = await Promise.all(ids.map((id) => place(id, { apartFrom: ids })))
      expect(new Set(places.map(({ _id }) => _id)).size).toBe(3)
    } finally {
      for (const id of ids) await release(id)
    }
  })

  test('waits for a host that has just fallen silent, as all are after an outage of the API', async () => {
    await open([first])
    const silent = { status: 'unreachable', unreachable_since: new Date() } as const
    await Host.updateMany({ status: 'active' }, { $set: silent })
    const { id, operation } = await tenant.containers.create()
    await operation.success()
    await expectAt(id, first)
    await open(hosts) // after the reports of all
  })

  test('says why no host fits, without naming a host', async () => {
    await open([])
    const { operation } = await tenant.containers.create()
    const { error } = await operation.end()
    expect(error).toMatchObject({ code: 'no_capacity' })
    expect(error?.detail).toBe('No host takes new instances (3 in all: 3 cordoned)')
    for (const { name } of hosts) expect(error?.detail).not.toContain(name)
  })
})

describeHosts('reschedule', () => {
  test('moves a running container with its name, image, config vars and ports', async () => {
    const before = await makeOn(first, {
      image: 'keelson/hello:1',
      command: [],
      config_vars: { KEPT: 'yes' },
      ports: [{ container_port: 8080 }],
    })
    await open([second])
    await (await tenant.containers.reschedule(before.id)).operation.success()
    const after = await expectAt(before.id, second)
    expect(after).toMatchObject({
      name: before.name,
      status: 'running',
      image_digest: before['image_digest'],
    })
    const [port] = after.ports
    const answer = await fetch(`http://${port?.host_address}:${port?.host_port}/`)
    expect(await answer.text()).toContain(before.name)
    const [{ Id } = { Id: '' }] = await second.engine.listContainers({
      filters: { label: [`keelson.resource=${before.id}`] },
    })
    expect((await second.engine.getContainer(Id).inspect()).Config.Env).toContain('KEPT=yes')
    await expectSums()
  })

  test('moves a stopped container, which stays stopped and starts on the new host', async () => {
    const { id } = await makeOn(first, { start: false })
    await open([second])
    await (await tenant.containers.reschedule(id)).operation.success()
    expect(await tenant.containers.get(id)).toMatchObject({ status: 'stopped', host_id: second.id })
    await (await tenant.containers.start(id)).operation.success()
    await expectAt(id, second)
  })

  test('fails without another host, and the container keeps running', async () => {
    const before = await makeOn(first)
    await open([first])
    const { error } = await (await tenant.containers.reschedule(before.id)).operation.end()
    expect(error).toMatchObject({ code: 'no_capacity' })
    expect((await expectAt(before.id, first)).started_at).toBe(before.started_at)
    await expectSums()
  })

  testDrawn('returns the container to the old host if it fails on the new one', async () => {
    const port = publishedPort(1 + Math.floor(Math.random() * 40))
    const ports = [{ container_port: 80, host_port: port }]
    await makeOn(second, { ports })
    const { id } = await makeOn(first, { ports })
    await open([second])
    const { error } = await (await tenant.containers.reschedule(id)).operation.end()
    expect(error).toMatchObject({ code: 'port_in_use' })
    expect(await expectAt(id, first)).toMatchObject({ status: 'running' })
    await expectSums()
  })

  testDrawn('stops the container first, also on a host whose reports were missed for a while', async () => {
    const { id } = await makeOn(first)
    await open([second])
    // As after an outage of the platform. The host's next report corrects the record.
    const silent = new Date(Date.now() - 60_000)
    await Host.updateOne({ _id: first.id }, { $set: { last_report_at: silent } })
    const activities = makeInstanceActivities()
    expect(await activities.placeInstanceElsewhere('container', id, null, newId())).toMatchObject({
      from_host_id: first.id,
      host_id: second.id,
    })
    await activities.stayInstance(id, newId())
    await expectSums()
    await eventually(() =>
      Host.exists({ _id: first.id, last_report_at: { $gt: silent }, unreachable_since: null }),
    )
  })

  test('lets only operators choose the host', async () => {
    const { id } = await makeOn(first)
    const path = `/api/v1/containers/${id}/reschedule`
    expect(await tenant.owner.ask('POST', path, { host_id: second.id })).toMatchObject({
      status: 403,
      body: { permission: 'platform:hosts' },
    })
  })

  const roles = ['worker', 'api', 'temporal', 'mongodb', 'host', 'host-2', 'docker-2'] as const
  test.each(sampled(roles, 2))('completes once although %s is killed in the middle', async (role) => {
    const { id } = await makeOn(first)
    await open([second])
    const { operation } = await tenant.containers.reschedule(id)
    await eventually(async () => (await operation.now()).step !== null)
    await platform.kill(role)
    await platform.start(role)
    expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
    await expectAt(id, second)
    await expectSums()
  })
})

describeHosts('a host', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('that falls silent is unreachable, and later removes the containers moved or deleted meanwhile', async () => {
    const stays = await makeOn(second)
    const moves = await makeOn(second)
    const goes = await makeOn(second)
    const idle = await makeOn(second, { start: false })
    await open([first, second])
    await platform.kill(second.roles.host) // its containers keep running, as behind a broken connection
    for (const { id } of [stays, moves, goes]) {
      await eventually(async () => (await tenant.containers.get(id)).status === 'unreachable')
    }
    expect(await operator.get(hostPath(second))).toMatchObject({ status: 'unreachable' })
    expect(await tenant.containers.activity(stays.id)).toMatchObject([
      { kind: 'created' },
      { kind: 'unreachable' },
    ])
    const stop = await tenant.owner.ask('POST', `/api/v1/containers/${stays.id}/stop`)
    expect(stop).toMatchObject({ status: 409, body: { code: 'state_conflict', state: 'unreachable' } })
    const start = await (await tenant.containers.start(idle.id)).operation.end()
    expect(start.error).toMatchObject({ code: 'host_unreachable' })

    await (await tenant.containers.reschedule(moves.id)).operation.success()
    expect(await tenant.containers.get(moves.id)).toMatchObject({ status: 'running', host_id: first.id })
    await (await tenant.containers.delete(goes.id)).operation.success()
    expect(await placesOf(goes.id)).toHaveLength(1) // the host could not be reached

    await platform.start(second.roles.host)
    await expectAt(moves.id, first)
    await eventually(async () => (await placesOf(goes.id)).length === 0)
    await eventually(async () => (await tenant.containers.get(stays.id)).status === 'running')
    expect((await expectAt(stays.id, second)).started_at).toBe(stays.started_at)
    expect((await tenant.containers.activity(stays.id)).map(({ kind }) => kind)).toEqual([
      'created',
      'unreachable',
      'reachable',
    ])
    expect(await operator.get(hostPath(second))).toMatchObject({ status: 'active' })
    await expectSums()
  })

  test('is evacuated: all its instances move, and it stays closed', async () => {
    const ids = []
    for (let i = 0; i < 4; i++) ids.push((await makeOn(third)).id)
    ids.push((await makeOn(third, { start: false })).id)
    const inUse = await operator.ask('DELETE', hostPath(third))
    expect(inUse).toMatchObject({ status: 409, body: { code: 'host_in_use' } })
    await open([second, third])
    const { operation, body } = await operator.begin('POST', `${hostPath(third)}/evacuate`)
    expect(body).toMatchObject({ status: 'evacuating', cordoned: true })
    await operation.success()
    for (const id of ids) expect(await tenant.containers.get(id)).toMatchObject({ host_id: second.id })
    for (const id of ids.slice(0, 4)) await expectAt(id, second)
    expect(await operator.get(hostPath(third))).toMatchObject({
      status: 'active',
      cordoned: true,
      reserved: { cpu_milli: 0, memory_mib: 0 },
    })
    await expectSums()
  })

  testDrawn('is evacuated once although the worker is killed while its instances move', async () => {
    const ids: string[] = []
    for (let i = 0; i < 3; i++) ids.push((await makeOn(third)).id)
    await open([second, third])
    const operation = await evacuating()
    await platform.kill('worker')
    await platform.start('worker')
    expect(await operation.end()).toMatchObject({ state: 'succeeded', parent_id: null, error: null })
    for (const id of ids) await expectAt(id, second)
    const children = await childrenOf(operation)
    expect(children.map(({ resource_id }) => resource_id).toSorted()).toEqual(ids.toSorted())
    for (const child of children)
      expect(child).toMatchObject({ verb: 'reschedule', state: 'succeeded', parent_id: operation.id })
    await expectSums()
  })

  testDrawn('gets its instances back unchanged if its evacuation is cancelled', async () => {
    const before = await makeOn(third)
    await open([second, third])
    await platform.kill(second.roles.host) // which delays the move
    const operation = await evacuating()
    expect(await home.owner.ask('POST', `${operation.path}/cancel`)).toMatchObject({ status: 202 })
    await platform.start(second.roles.host)
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    expect(await childrenOf(operation)).toMatchObject([{ resource_id: before.id, state: 'cancelled' }])
    expect((await expectAt(before.id, third)).started_at).toBe(before.started_at)
    await expectSums()
    await (await tenant.containers.delete(before.id)).operation.success()
  })

  test('whose instances fit nowhere fails its evacuation with a reason, and they keep running', async () => {
    const before = await makeOn(third)
    await open([third])
    const { operation } = await operator.begin('POST', `${hostPath(third)}/evacuate`)
    const { error } = await operation.end()
    expect(error).toMatchObject({ code: 'not_evacuated' })
    expect(error?.detail).toMatch(
      /^1 of the host’s instances and disks could not be moved: No other host takes/,
    )
    expect((await expectAt(before.id, third)).started_at).toBe(before.started_at)
  })

  test('is closed and opened by operators', async () => {
    for (const [verb, cordoned] of [
      ['cordon', true],
      ['uncordon', false],
    ] as const) {
      const answer = await operator.ask('POST', `${hostPath(third)}/${verb}`)
      expect(answer).toMatchObject({ status: 200, body: { cordoned } })
    }
  })

  test('that was announced and never enrolled can be deleted', async () => {
    const name = `host-${newId().slice(-12)}`
    const { headers } = await operator.ask('POST', '/api/v1/platform/hosts', { name })
    const path = headers.get('location') ?? ''
    expect(await operator.ask('DELETE', path)).toMatchObject({ status: 204 })
    for (const method of ['GET', 'DELETE'])
      expect(await operator.ask(method, path)).toMatchObject({ status: 404 })
  })
})
