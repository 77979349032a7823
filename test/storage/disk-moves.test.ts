import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import { Disk, openSource } from '../../models/storage/disks.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import type { Client, ContainerBody, Json } from '../support/client.ts'
import { diskPlaces, tracesOf } from '../support/disk-traces.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, first, hosts, second, third } from '../support/describe-hosts.ts'
import { closeFurther, open, placesOf, type TestHost } from '../support/hosts.ts'
import { runInside } from '../support/inside.ts'
import { plantAll } from '../support/planted.ts'
import { platform } from '../support/platform.ts'
import { publishedPort } from '../support/stack.ts'
import { makeOperator, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Disks that move between hosts, alone and with their containers.

let tenant: TestTenant
let operator: Client

beforeAll(async () => {
  tenant = await makeTenant()
  operator = await makeOperator()
})

const inside = (host: TestHost, id: string, script: string): Promise<string> =>
  runInside(host.engine, `keelson-${id}`, script)
const sum = 'sha256sum < /data/file'

/**
 * There is one complete copy on this host, as recorded and reserved. Hosts remove other copies after their next
 * reports.
 */
async function expectDiskAt(id: string, host: TestHost, status = 'available'): Promise<void> {
  await eventually(async () => (await diskPlaces(id)).join() === host.name)
  expect(await tenant.disks.get(id)).toMatchObject({ host_id: host.id, status, operation_id: null })
  const held = await Reservation.findById(id).setOptions(everyTenant).lean()
  expect(held).toMatchObject({ host_id: host.id, target_host_id: null })
  expect((await Disk.findById(id).setOptions(everyTenant).lean())?.transfer_sealed).toBe('-')
}

async function diskOn(host: TestHost, over: Json = {}): Promise<string> {
  await open([host])
  const { id } = await tenant.disks.make(over)
  await open(hosts)
  return id
}

/** A container with a disk and 20 MB of random bytes on it; also returns their checksum. */
async function withNoise(
  host: TestHost,
  disk_id: string,
  over: Json = {},
): Promise<{ container: ContainerBody; noise: string }> {
  const container = await tenant.containers.make({ disks: [{ disk_id, mount_path: '/data' }], ...over })
  expect(container.host_id).toBe(host.id)
  const noise = await inside(host, container.id, `head -c 20000000 /dev/urandom > /data/file; sync; ${sum}`)
  return { container, noise }
}

async function stop(id: string): Promise<void> {
  await (await tenant.containers.stop(id)).operation.success()
}

describeHosts('a migration', () => {
  test('keeps the content of a disk through a snapshot, a restore and a move to another host', async () => {
    const disk = await diskOn(first)
    const { container, noise } = await withNoise(first, disk)
    await (await tenant.disks.snapshot(disk, 'v1')).operation.success()
    await inside(first, container.id, 'echo changed > /data/file')
    const { id: restored, operation } = await tenant.disks.restore(disk, 'v1')
    await operation.success()
    await (await tenant.disks.snapshot(restored, 'kept')).operation.success()
    const { operation: migration } = await tenant.disks.migrate(restored, second.id)
    await migration.success()
    await expectDiskAt(restored, second)
    const reader = await tenant.containers.make({ disks: [{ disk_id: restored, mount_path: '/data' }] })
    expect(reader.host_id).toBe(second.id)
    expect(await inside(second, reader.id, sum)).toBe(noise)
    const again = await tenant.disks.restore(restored, 'kept')
    await again.operation.success()
    expect(await tenant.disks.get(again.id)).toMatchObject({ host_id: second.id })
  })

  testDrawn('reports its progress, keeps to the bandwidth limit, and never shows its key', async () => {
    const disk = await diskOn(first)
    const { container } = await withNoise(first, disk)
    await (await tenant.containers.delete(container.id)).operation.success()
    const { operation } = await tenant.disks.migrate(disk, second.id, { bandwidth_mib_per_sec: 4 })
    const steps = new Set<string>()
    let key = ''
    await eventually(async () => {
      const { step, state } = await operation.now()
      if (step) steps.add(step)
      const record = await Disk.findById(disk).setOptions(everyTenant).lean()
      if (record && record.transfer_sealed !== '-') key = (await openSource(record)).key
      return state === 'succeeded'
    })
    expect([...steps].filter((step) => / [1-9]\d? %$/.test(step)).length).toBeGreaterThan(1)
    expect(key).toMatch(/^[0-9a-f]{64}$/)
    plantAll([key])
    await expectDiskAt(disk, second)
  })

  testDrawn(
    'is refused while a container runs with the disk; a stopped one follows the disk at its next start',
    async () => {
      const disk = await diskOn(first)
      const { container, noise } = await withNoise(first, disk)
      const refused = await tenant.owner.ask('POST', `/api/v1/disks/${disk}/migrate`, {})
      expect(refused).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
      expect(refused.body['detail']).toMatch(/stop it first/)
      await stop(container.id)
      await (await tenant.disks.migrate(disk, second.id)).operation.success()
      await expectDiskAt(disk, second, 'attached')
      await (await tenant.containers.start(container.id)).operation.success()
      expect(await tenant.containers.get(container.id)).toMatchObject({
        host_id: second.id,
        status: 'running',
      })
      expect(await inside(second, container.id, sum)).toBe(noise)
      await eventually(async () => (await placesOf(container.id)).length === 1)
    },
  )

  testDrawn('refuses the start of the disk’s container at once, and completes', async () => {
    const disk = await diskOn(first)
    const { container, noise } = await withNoise(first, disk)
    await stop(container.id)
    const { operation } = await tenant.disks.migrate(disk, second.id, { bandwidth_mib_per_sec: 8 })
    const start = await (await tenant.containers.start(container.id)).operation.end()
    expect(start.error).toMatchObject({ code: 'disk_migrating' })
    await operation.success()
    await (await tenant.containers.start(container.id)).operation.success()
    expect(await inside(second, container.id, sum)).toBe(noise)
  })

  test('to the same host, to no host or to a host without room is refused at once', async () => {
    const disk = await diskOn(first)
    const mover = await tenant.user('owner', 'operator')
    const ask = (target_host_id: string) =>
      mover.ask('POST', `/api/v1/disks/${disk}/migrate`, { target_host_id })
    expect(await ask(first.id)).toMatchObject({ status: 409, body: { code: 'already_there' } })
    expect(await ask(newId())).toMatchObject({ status: 404 })
    await open([first])
    expect(await ask(second.id)).toMatchObject({ status: 409, body: { code: 'no_capacity' } })
    await open(hosts)
    await expectDiskAt(disk, first)
  })

  testDrawn('that is cancelled leaves the disk on its host, and nothing elsewhere', async () => {
    const disk = await diskOn(first)
    const { container, noise } = await withNoise(first, disk)
    await (await tenant.containers.delete(container.id)).operation.success()
    const { operation } = await tenant.disks.migrate(disk, second.id, { bandwidth_mib_per_sec: 1 })
    await eventually(async () => (await operation.now()).step?.endsWith(' %'))
    expect((await operation.cancel()).status).toBe(202)
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    await expectDiskAt(disk, first)
    const reader = await tenant.containers.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
    expect(await inside(first, reader.id, sum)).toBe(noise)
  })
})

describeHosts('a container with disks', () => {
  test('is created on their host, and nowhere else', async () => {
    const here = await diskOn(first)
    const there = await diskOn(second)
    const disks = [here, there].map((disk_id, i) => ({ disk_id, mount_path: `/disks/${i}` }))
    const apart = await tenant.owner.ask('POST', '/api/v1/containers', {
      name: 'apart',
      image: 'busybox',
      cpu_cores: 0.1,
      memory_mib: 16,
      disks,
    })
    expect(apart).toMatchObject({ status: 409, body: { code: 'disk_elsewhere' } })
    const container = await tenant.containers.make({ disks: disks.slice(1) })
    expect(container.host_id).toBe(second.id)
    const other = await tenant.owner.ask('POST', `/api/v1/containers/${container.id}/disks`, disks[0])
    expect(other).toMatchObject({ status: 409, body: { code: 'disk_elsewhere' } })
    expect(other.body['detail']).toMatch(/migrate the disk or reschedule the container/)
    expect(await tenant.disks.get(here)).toMatchObject({ status: 'available' })
  })

  test('is rescheduled with them', async () => {
    const [disk, live] = [await diskOn(first), await diskOn(first)]
    const { container, noise } = await withNoise(first, disk)
    await (await tenant.containers.attach(container.id, live, '/live')).operation.success()
    await inside(first, container.id, 'echo live > /live/file; sync')
    await open([second])
    await (await tenant.containers.reschedule(container.id)).operation.success()
    expect(await tenant.containers.get(container.id)).toMatchObject({ host_id: second.id, status: 'running' })
    for (const id of [disk, live]) await expectDiskAt(id, second, 'attached')
    expect(await inside(second, container.id, `${sum}; cat /live/file`)).toBe(`${noise}\nlive`)
    await eventually(async () => (await placesOf(container.id)).length === 1)
  })

  testDrawn('is brought back with its disks if it cannot start on the new host', async () => {
    const port = publishedPort(41 + Math.floor(Math.random() * 40))
    const ports = [{ container_port: 80, host_port: port }]
    await open([second])
    await tenant.containers.make({ ports })
    const disk = await diskOn(first)
    const { container, noise } = await withNoise(first, disk, { ports })
    await open([second])
    const { error } = await (await tenant.containers.reschedule(container.id)).operation.end()
    expect(error).toMatchObject({ code: 'port_in_use' })
    expect(await tenant.containers.get(container.id)).toMatchObject({ host_id: first.id, status: 'running' })
    await expectDiskAt(disk, first, 'attached')
    expect(await inside(first, container.id, sum)).toBe(noise)
  })

  testDrawn('stays on its host while that does not answer, and says why', async () => {
    const disk = await diskOn(second)
    const { container } = await withNoise(second, disk)
    await platform.kill(second.roles.host)
    await eventually(async () => (await tenant.containers.get(container.id)).status === 'unreachable')
    const { error } = await (await tenant.containers.reschedule(container.id)).operation.end()
    expect(error).toMatchObject({ code: 'disks_unreachable' })
    await platform.start(second.roles.host)
    await eventually(async () => (await tenant.containers.get(container.id)).status === 'running')
    await expectDiskAt(disk, second, 'attached')
  })
})

describeHosts('a host', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('is evacuated with all disks, attached or not', async () => {
    const [alone, disk] = [await diskOn(third), await diskOn(third)]
    const { container, noise } = await withNoise(third, disk)
    await open([second, third])
    await (await operator.begin('POST', `/api/v1/platform/hosts/${third.id}/evacuate`)).operation.success()
    await expectDiskAt(alone, second)
    await expectDiskAt(disk, second, 'attached')
    expect(await inside(second, container.id, sum)).toBe(noise)
    expect(await operator.get(`/api/v1/platform/hosts/${third.id}`)).toMatchObject({
      reserved: { disk_gib: 0 },
    })
  })

  testDrawn('that was away removes the disks that were deleted meanwhile', async () => {
    const disk = await diskOn(second)
    const { container } = await withNoise(second, disk)
    await platform.kill(second.roles.host)
    await eventually(async () => (await tenant.containers.get(container.id)).status === 'unreachable')
    await (await tenant.containers.delete(container.id)).operation.success()
    await (await tenant.disks.delete(disk)).operation.success()
    expect(await diskPlaces(disk)).toEqual([second.name])
    await platform.start(second.roles.host)
    await eventually(async () => (await tracesOf(disk)).length === 0)
  })
})
