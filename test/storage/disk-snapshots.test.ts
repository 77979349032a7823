import { beforeAll, describe, expect, test } from '@jest/globals'
import { shell } from '../support/client.ts'
import { tracesOf } from '../support/disk-traces.ts'
import { docker } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { runInside } from '../support/inside.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

const inside = (id: string, script: string): Promise<string> => runInside(docker, `keelson-${id}`, script)
const withDisk = (disk_id: string) => tenant.containers.make({ disks: [{ disk_id, mount_path: '/data' }] })

describe('a snapshot', () => {
  test('under load holds all earlier writes completely, and a disk restored from it is independent', async () => {
    const { id: disk } = await tenant.disks.make()
    const writer = await tenant.containers.make({
      ...shell('i=0; while true; do i=$((i+1)); echo $i >> /data/a; echo $i >> /data/b; done', {
        cpu_cores: 0.5,
      }),
      disks: [{ disk_id: disk, mount_path: '/data' }],
    })
    const lines = async (id: string, file: string): Promise<number> =>
      Number(await inside(id, `wc -l < /data/${file}`))
    await eventually(async () => (await lines(writer.id, 'b')) > 100)
    const before = await lines(writer.id, 'b')
    const { operation } = await tenant.disks.snapshot(disk, 'under-load')
    await operation.success()
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'attached' })

    const restoring = await tenant.disks.restore(disk, 'under-load')
    expect(restoring.body).toMatchObject({
      disk_id: disk,
      new_disk_id: restoring.id,
      new_disk_uuid: restoring.id,
      status: 'creating',
    })
    await restoring.operation.success()
    await (await tenant.containers.delete(writer.id)).operation.success()
    await (await tenant.disks.delete(disk)).operation.success()
    const reader = await withDisk(restoring.id)
    const [a, b] = [await lines(reader.id, 'a'), await lines(reader.id, 'b')]
    expect(b).toBeGreaterThanOrEqual(before)
    expect([0, 1]).toContain(a - b)
    expect(await inside(reader.id, 'tail -n 1 /data/b')).toBe(String(b))
  })

  test('is listed with size, use and time, and uses quota for what it keeps', async () => {
    const holder = await makeTenant({ max_storage_gib: 20 })
    const { id } = await holder.disks.make({ size_gib: 8 })
    await (await holder.disks.snapshot(id, 'one')).operation.success()
    expect(await holder.disks.snapshots(id)).toMatchObject([
      {
        name: 'one',
        status: 'available',
        size_gib: 8,
        used_bytes: expect.any(Number),
        taken_at: expect.any(String),
      },
    ])
    // The full size is reserved while it is taken, then its actual size: less than a GiB for an empty disk.
    expect(await holder.storage()).toEqual({ disk_gib: 9, reservations: 1 })
    const taken = await holder.owner.ask('POST', `/api/v1/disks/${id}/snapshots`, { name: 'one' })
    expect(taken).toMatchObject({ status: 409, body: { code: 'name_taken' } })
    await (await holder.disks.update(id, { size_gib: 12 })).operation.success()
    const more = await holder.owner.ask('POST', `/api/v1/disks/${id}/snapshots`, { name: 'two' })
    expect(more).toMatchObject({ status: 409, body: { code: 'quota_exceeded', limit: 'max_storage_gib' } })
    expect(await holder.disks.snapshots(id)).toHaveLength(1)

    await (await holder.disks.removeSnapshot(id, 'one')).operation.success()
    expect(await holder.disks.snapshots(id)).toEqual([])
    expect(await holder.storage()).toEqual({ disk_gib: 12, reservations: 1 })
    for (const method of ['DELETE', 'POST'])
      expect(
        await holder.owner.ask(
          method,
          `/api/v1/disks/${id}/snapshots/one${method === 'POST' ? '/restore' : ''}`,
        ),
      ).toMatchObject({ status: 404 })
  })

  test('makes a disk of at least the original size with the same files', async () => {
    const { id: disk } = await tenant.disks.make({ size_gib: 2 })
    const writer = await withDisk(disk)
    const sum = await inside(writer.id, 'head -c 5000000 /dev/urandom > /data/file; sha256sum < /data/file')
    await (await tenant.disks.snapshot(disk, 'v1')).operation.success()
    await inside(writer.id, 'echo changed > /data/file')
    const from_snapshot = { disk_id: disk, name: 'v1' }
    const small = await tenant.owner.ask('POST', '/api/v1/disks', {
      name: 'small',
      size_gib: 1,
      from_snapshot,
    })
    expect(small).toMatchObject({ status: 422, body: { errors: [{ pointer: '/size_gib' }] } })
    const larger = await tenant.disks.make({ size_gib: 4, from_snapshot })
    const reader = await withDisk(larger.id)
    expect(await inside(reader.id, 'sha256sum < /data/file')).toBe(sum)
    expect(Number(await inside(reader.id, "df -k /data | tail -n 1 | awk '{print $2}'"))).toBeGreaterThan(
      3.8 * 1024 ** 2,
    )
  })

  test('needs the restore permission to be restored', async () => {
    const { id } = await tenant.disks.make()
    await (await tenant.disks.snapshot(id, 'v1')).operation.success()
    const viewer = await tenant.user('viewer')
    expect(await viewer.ask('POST', `/api/v1/disks/${id}/snapshots/v1/restore`)).toMatchObject({
      status: 403,
      body: { permission: 'disks:restore' },
    })
    await (await tenant.disks.delete(id)).operation.success()
    expect(await tracesOf(id)).toEqual([])
  })
})
