import { expect, test } from '@jest/globals'
import { type ContainerBody, type Json, shell } from '../support/client.ts'
import { testDrawn } from '../support/drawn.ts'
import { docker, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { execInside } from '../support/inside.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// The owner's desired state is restored after changes on the engine, and the activity feed records the repair.

/** A container that has not changed for some seconds: a report may be older than a newer record that it contradicts. */
async function settled(tenant: TestTenant, over: Json = {}): Promise<ContainerBody> {
  const container = await tenant.containers.make(over)
  await eventually(() => Date.now() - Date.parse(String(container['updated_at'])) > 2_500)
  return container
}

const runningAgain = (tenant: TestTenant, { id, started_at }: ContainerBody): Promise<ContainerBody> =>
  eventually(async () => {
    const now = await tenant.containers.get(id)
    return now.status === 'running' && !now.operation_id && now['started_at'] !== started_at && now
  })

const noted = (tenant: TestTenant, id: string, kind: string): Promise<Json> =>
  eventually(async () => (await tenant.containers.activity(id)).find((event) => event['kind'] === kind))

testDrawn('a container that is removed from its host is recreated, with its ports', async () => {
  const tenant = await makeTenant()
  const before = await settled(tenant, { ports: [{ container_port: 80 }] })
  await engine.remove(before.id)
  const after = await runningAgain(tenant, before)
  expect(after.ports).toEqual(before.ports)
  expect((await engine.only(before.id)).State.Running).toBe(true)
  expect(await noted(tenant, before.id, 'repair')).toMatchObject({
    message: expect.stringMatching(/starting it again/),
    data: { operation_id: expect.any(String) },
  })
  expect(await tenant.holds()).toEqual({ cpu_milli: 100, memory_mib: 16, reservations: 1 })
})

test('a container that is killed is started again', async () => {
  const tenant = await makeTenant()
  const before = await settled(tenant)
  await engine.kill(before.id)
  await runningAgain(tenant, before)
  expect((await engine.only(before.id)).State.Running).toBe(true)
  const [, event] = await eventually(async () => {
    const events = await tenant.containers.activity(before.id)
    return events.length > 1 && events
  })
  expect(event).toMatchObject({
    kind: expect.stringMatching(/^(repair|restarted)$/),
    message: expect.any(String),
  })
})

testDrawn('a container that is stopped on its host is started again', async () => {
  const tenant = await makeTenant()
  const before = await settled(tenant)
  await docker.getContainer((await engine.only(before.id)).Id).stop({ t: 0 })
  await runningAgain(tenant, before)
  expect(await noted(tenant, before.id, 'repair')).toMatchObject({ data: { exit_code: expect.any(Number) } })
})

test('a service that crashes is restarted, and the restart is counted', async () => {
  const tenant = await makeTenant()
  const { id } = await tenant.containers.make(shell('sleep 3; [ -e /ran ] && sleep 3600; touch /ran; exit 4'))
  const restarted = await eventually(async () => {
    const now = await tenant.containers.get(id)
    return Number(now['restart_count']) > 0 && now
  })
  expect(restarted).toMatchObject({ status: 'running', desired_state: 'running' })
  expect(await noted(tenant, id, 'restarted')).toBeDefined()
})

test('a job that ends stays ended, and its exit code is kept', async () => {
  const tenant = await makeTenant()
  const { id } = await tenant.containers.make(shell('sleep 3; exit 6', { restart_policy: 'never' }))
  const done = await eventually(async () => {
    const now = await tenant.containers.get(id)
    return now.status === 'stopped' && now
  })
  expect(done).toMatchObject({ exit_code: 6, desired_state: 'stopped' })
  expect(await noted(tenant, id, 'exited')).toMatchObject({ message: expect.stringMatching(/exit code 6/) })
})

test('a container that writes more than its disk_gib is stopped, and starts again with its files', async () => {
  const [tenant, other] = [await makeTenant(), await makeTenant()]
  const neighbour = await other.containers.make()
  const script = '[ -e /filled ] || dd if=/dev/zero of=/filled bs=1M count=1100; exec sleep 3600'
  const { id } = await tenant.containers.make(shell(script, { disk_gib: 1, cpu_cores: 1, memory_mib: 64 }))
  const full = await eventually(async () => {
    const now = await tenant.containers.get(id)
    return now.status === 'stopped' && now
  })
  const message = expect.stringMatching(/had written more than its disk_gib/)
  expect(full).toMatchObject({ desired_state: 'stopped', restart_policy: 'always', status_reason: message })
  await noted(tenant, id, 'disk_full')
  expect((await engine.only(id)).State.Running).toBe(false)

  await (await tenant.containers.update(id, { disk_gib: 2 })).operation.success()
  await (await tenant.containers.start(id)).operation.success()
  expect(await tenant.containers.get(id)).toMatchObject({
    status: 'running',
    status_reason: null,
    disk_gib: 2,
  })
  const inside = docker.getContainer((await engine.only(id)).Id)
  expect((await execInside(inside, ['stat', '-c', '%s', '/filled'])).output).toBe(String(1100 * 2 ** 20))
  // Neither repaired nor restarted before, and nobody else was stopped.
  expect(await tenant.containers.activity(id)).toMatchObject([
    { kind: 'created' },
    { kind: 'disk_full', message, data: { ended_by: 'disk_full' } },
  ])
  const { started_at, restart_count } = neighbour
  expect(await other.containers.get(neighbour.id)).toMatchObject({
    status: 'running',
    started_at,
    restart_count,
  })
})

test('a container that its engine restarts again and again is stopped once it has written more than its disk_gib', async () => {
  const tenant = await makeTenant()
  const script = 'dd if=/dev/zero of=/filled bs=1M count=1100; exit 1'
  const { id } = await tenant.containers.make(shell(script, { disk_gib: 1, cpu_cores: 1, memory_mib: 64 }))
  const full = await eventually(async () => {
    const now = await tenant.containers.get(id)
    return now.desired_state === 'stopped' && now
  })
  const message = expect.stringMatching(/had written more than its disk_gib/)
  expect(full).toMatchObject({ status: 'stopped', restart_policy: 'always', status_reason: message })
  await noted(tenant, id, 'disk_full')
  // The host tells that it ended while it may still keep its engine from starting it again.
  await eventually(async () => {
    const { State, HostConfig } = await engine.only(id)
    return !State.Running && !State.Restarting && HostConfig.RestartPolicy?.Name === 'no'
  })

  // With room it is restarted as before.
  await (await tenant.containers.update(id, { disk_gib: 2 })).operation.success()
  await tenant.containers.start(id)
  await eventually(async () => Number((await tenant.containers.get(id))['restart_count']) > 0)
})

test('a container that its owner stopped stays stopped', async () => {
  const tenant = await makeTenant()
  const { id } = await tenant.containers.make()
  await (await tenant.containers.stop(id)).operation.success()
  const witness = await settled(tenant)
  await engine.remove(witness.id)
  await runningAgain(tenant, witness) // by now the host has reported, and all repairs are done
  expect(await tenant.containers.get(id)).toMatchObject({ status: 'stopped', operation_id: null })
  expect(await tenant.containers.activity(id)).toMatchObject([{ kind: 'created' }])
})

test('a container that fails its health check keeps running; the feed records failure and recovery', async () => {
  const tenant = await makeTenant()
  const { id, started_at } = await tenant.containers.make({
    ...shell('touch /well; exec sleep 3600'),
    health_check: { command: ['test', '-e', '/well'], interval_sec: 5, retries: 1 },
  })
  const healthIs = (health: string) =>
    eventually(async () => (await tenant.containers.get(id))['health'] === health)
  const inside = docker.getContainer((await engine.only(id)).Id)
  await healthIs('healthy')
  for (const [kind, change] of [
    ['unhealthy', 'rm'],
    ['healthy', 'touch'],
  ] as const) {
    await execInside(inside, [change, '/well'])
    expect(await noted(tenant, id, kind)).toMatchObject({
      message: expect.stringMatching(/health check/),
    })
    await healthIs(kind)
  }
  expect(await tenant.containers.get(id)).toMatchObject({ status: 'running', started_at })
})
