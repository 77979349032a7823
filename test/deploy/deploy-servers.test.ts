import { beforeAll, describe, expect, test } from '@jest/globals'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { EventSubscription } from '../../models/deploy/event-subscriptions.ts'
import { EventDelivery } from '../../models/deploy/events.ts'
import { readBlob } from '../../models/blobs.ts'
import { SwarmCopy } from '../../models/deploy/swarm-copies.ts'
import type { DeployServerBody, Json } from '../support/client.ts'
import { eventsOf } from '../support/clients/events.ts'
import { testDrawn } from '../support/drawn.ts'
import { replicas } from '../support/api-clients.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { testLong } from '../support/long-tests.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
let server: DeployServerBody

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_count: 2 })
})

const machines = () =>
  tenant.owner.get<{ items: (Json & { id: string; name: string; memory_mib: number })[] }>(
    `/api/v1/containers?managed_by=${server.id}&sort_by=name&order=asc`,
  )

describe('a deploy server', () => {
  test('has a control plane and workers that take applications', async () => {
    expect(server).toMatchObject({
      status: 'ready',
      uuid: server.id,
      init_step: null,
      machine_kind: 'container',
      worker_count: 2,
      control_plane: { name: 'cp', registered: true },
      workers: [
        { name: 'w1', registered: true, disk_gib: 2 },
        { name: 'w2', registered: true },
      ],
      lb_id: expect.any(String),
    })
    const { items } = await machines()
    expect(items).toMatchObject([
      { name: 'cp', status: 'running', managed_by: server.id },
      { name: 'w1', status: 'running' },
      { name: 'w2', status: 'running' },
    ])
  })

  test('has machines that ask often for the address of a container that starts', async () => {
    const { items } = await machines()
    const times = 'cd /proc/sys/net/ipv4/neigh; cat docker0/retrans_time_ms docker_gwbridge/retrans_time_ms'
    // The engine makes the second bridge some time after it has joined the Swarm.
    for (const { id } of items)
      await eventually(async () => {
        const set = (await runOnMachine(tenant.owner, id, times)).split('\n').map(Number)
        return set.length === 2 && set.every((ms) => ms < 100) // 50, up to one tick of the kernel's clock; by default 1000
      })
  })

  test('exists once: a second creation answers with it, and many at once make one', async () => {
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => tenant.owner.ask('POST', '/api/v1/deploy-servers', { name: 'other' })),
    )
    for (const { status, body } of answers) expect([status, body['id']]).toEqual([200, server.id])

    const another = await makeTenant()
    const first = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        another.owner.ask('POST', new URL('/api/v1/deploy-servers', replicas()[index % 2]).href),
      ),
    )
    expect(new Set(first.map(({ body }) => body['id'])).size).toBe(1)
    expect(first.filter(({ status }) => status === 202)).toHaveLength(1)
    expect(first.filter(({ status }) => status === 200)).toHaveLength(19)
    const [id = ''] = first.map(({ body }) => String(body['id']))
    await eventually(
      async () =>
        (await another.owner.deployServers.get(id)).init_step === 'making the network and the machines',
    )
    const deletion = await another.owner.deployServers.delete(id) // while it is being created
    await deletion.operation.success()
    expect(await another.holds()).toEqual(holdsNothing)
    expect(await another.storage()).toEqual({ disk_gib: 0, reservations: 0 })
    expect(await another.owner.get('/api/v1/vpcs?limit=0')).toMatchObject({ total: 0 })
    expect(await engine.withLabel('keelson.tenant', another.id)).toEqual([])
  })

  testDrawn('grows and shrinks by workers, and changes their size and disks', async () => {
    const changes = {
      worker_count: 3,
      worker_instance_type: 'small',
      worker_disk_gib: 3,
      app_instance_type: 'small',
    }
    await (await tenant.owner.deployServers.update(server.id, changes)).operation.success()
    expect(await tenant.owner.deployServers.get(server.id)).toMatchObject({
      status: 'ready',
      control_plane: { instance_type: 'small' },
      workers: [1, 2, 3].map((number) => ({
        name: `w${number}`,
        registered: true,
        instance_type: 'small',
        disk_gib: 3,
      })),
    })
    const { items } = await machines()
    expect(items.map(({ memory_mib }) => memory_mib)).toEqual([1024, 1024, 1024, 1024])
    for (const { id } of items) {
      const group = '/sys/fs/cgroup'
      const limits = `cat ${group}/apps/memory.max ${group}/memory/apps/memory.limit_in_bytes 2>/dev/null`
      expect(await runOnMachine(tenant.owner, id, limits)).toBe(String(896 * 1024 ** 2))
    }

    await (await tenant.owner.deployServers.update(server.id, { worker_count: 1 })).operation.success()
    expect(await tenant.owner.deployServers.get(server.id)).toMatchObject({
      worker_count: 1,
      workers: [{ name: 'w1' }],
    })
    expect((await machines()).items.map(({ name }) => name)).toEqual(['cp', 'w1'])
    expect(
      await tenant.owner.get(`/api/v1/disks?managed_by=${server.id}&sort_by=name&order=asc`),
    ).toMatchObject({ items: [{ name: 'cp' }, { name: 'w1', size_gib: 3 }], total: 2 })
  })

  testDrawn('adds and removes several workers one at a time', async () => {
    const { owner, id: tenant_id } = await makeTenant()
    const { id } = await owner.deployServers.make()
    /** Changes the number of workers. Returns which were in the middle of coming or going at each moment. */
    const watched = async (worker_count: number): Promise<string[]> => {
      const { operation } = await owner.deployServers.update(id, { worker_count })
      const seen = new Set<string>()
      await eventually(async () => {
        const record = await DeployServer.findOne({ _id: id, tenant_id }).lean()
        const nodes = record?.nodes.filter(({ registered }) => !registered) ?? []
        seen.add(nodes.map(({ name }) => name).join(' and '))
        return record?.status === 'ready'
      })
      await operation.success()
      return [...seen].filter(Boolean)
    }
    expect(await watched(3)).toEqual(['w2', 'w3'])
    expect(await watched(1)).toEqual(['w3', 'w2'])
    await (await owner.deployServers.delete(id)).operation.success()
  })

  testLong('has ten workers', async () => {
    const many = await makeTenant()
    const { owner } = many
    const { id } = await owner.deployServers.make({ worker_count: 8 })
    await (await owner.deployServers.update(id, { worker_count: 10 })).operation.success()
    const { workers } = await owner.deployServers.get(id)
    expect(workers.map(({ name, registered }) => [name, registered])).toEqual(
      Array.from({ length: 10 }, (_, index) => [`w${index + 1}`, true]),
    )
    await (await owner.deployServers.delete(id)).operation.success()
    expect(await many.holds()).toEqual(holdsNothing)
  })

  test.each([
    ['more workers than a deploy server has', { worker_count: 11 }, '/worker_count'],
    ['no workers', { worker_count: 0 }, '/worker_count'],
    ['an unknown size', { worker_instance_type: 'huge' }, '/worker_instance_type'],
    ['smaller disks', { worker_disk_gib: 1 }, '/worker_disk_gib'],
  ])('refuses %s', async (_, changes, pointer) => {
    const answer = await tenant.owner.ask('PUT', `/api/v1/deploy-servers/${server.id}`, changes)
    expect(answer).toMatchObject({ status: 422, body: { errors: [{ pointer }] } })
    expect(await tenant.owner.deployServers.get(server.id)).toMatchObject({ status: 'ready' })
  })

  test('that the tenant has no quota for fails, and leaves nothing', async () => {
    const poor = await makeTenant({ max_ram_gib: 1 })
    const { id, operation } = await poor.owner.deployServers.create({ worker_instance_type: 'small' })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'quota_exceeded' } })
    expect(await poor.owner.deployServers.get(id)).toMatchObject({
      status: 'error',
      init_step: null,
      control_plane: null,
      workers: [],
    })
    expect(await poor.owner.ask('GET', `/api/v1/deploy-servers/${id}/credentials`)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', detail: expect.stringContaining('error') },
    })
    expect(await poor.holds()).toEqual(holdsNothing)
    expect(await poor.owner.get('/api/v1/vpcs?limit=0')).toMatchObject({ total: 0 })
  })

  testDrawn('keeps a worker that has joined if its update fails later', async () => {
    const small = await makeTenant({ max_ram_gib: 3 })
    const { deployServers } = small.owner
    const { id } = await deployServers.make()
    // The new worker and the control plane take the rest of the quota, and the first worker cannot grow.
    const changes = { worker_count: 2, worker_instance_type: 'small', app_instance_type: 'small' }
    const { operation } = await deployServers.update(id, changes)
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'quota_exceeded' } })
    const kept = await deployServers.get(id)
    expect(kept).toMatchObject({
      status: 'ready',
      worker_count: 2,
      worker_instance_type: 'mini',
      workers: [
        { name: 'w1', registered: true, instance_type: 'mini' },
        { name: 'w2', registered: true, instance_type: 'small' },
      ],
    })
    await runOnMachine(small.owner, kept.workers[1]?.machine_id ?? '', 'docker info')
    await (await deployServers.update(id, {})).operation.success()
    expect(await deployServers.get(id)).toMatchObject({
      workers: [1, 2].map((number) => ({ name: `w${number}`, registered: true, instance_type: 'mini' })),
    })
    await (await deployServers.delete(id)).operation.success()
  })

  test('has a sealed copy of what its control plane knows of the Swarm', async () => {
    const whole = { tenant_id: tenant.id, deploy_server_id: server.id, whole: { $gt: 0 } }
    const copy = await eventually(async () => SwarmCopy.findOne(whole).lean())
    for (const piece of copy.pieces) {
      const bytes = await readBlob(piece)
      for (const words of ['swarm-node.key', 'PRIVATE KEY', 'docker-state.json'])
        expect(bytes.includes(words)).toBe(false)
    }
  })

  testDrawn('is deleted with everything that it has made, and with those who subscribed to it', async () => {
    const events = eventsOf(tenant.owner, server.id)
    await events.test((await events.make({ url: 'http://localhost:9/' })).id)
    await (await tenant.owner.deployServers.delete(server.id)).operation.success()
    expect(await tenant.holds()).toEqual(holdsNothing)
    expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
    expect(await tenant.owner.get(`/api/v1/subnets?managed_by=${server.id}`)).toMatchObject({ total: 0 })
    expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
    expect(await EventSubscription.countDocuments({ tenant_id: tenant.id })).toBe(0)
    expect(await EventDelivery.countDocuments({ tenant_id: tenant.id })).toBe(0)
    expect(await SwarmCopy.countDocuments({ tenant_id: tenant.id })).toBe(0)
  })
})
