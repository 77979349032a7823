import { expect, test } from '@jest/globals'
import { isRoot } from '../support/as-root.ts'
import { makeTenant } from '../support/tenants.ts'

// A guest writes the blocks of its disk itself. A file system that it made to break a kernel must not get to a host's.

const isRefused = { status: 409, body: { code: 'disk_written_by_machine' } }

const onlyRoot = isRoot ? test : test.skip
onlyRoot('a disk that a microVM had writable, and its copies, come to no container', async () => {
  const { owner, containers, disks, microvms } = await makeTenant()
  const { id } = await disks.make()
  const machine = await microvms.make({ start: false })
  await (await microvms.attach(machine.id, id)).operation.success()
  await (await microvms.detach(machine.id, id)).operation.success()
  expect(await disks.get(id)).toMatchObject({ status: 'available', written_by_machine: true })

  await (await disks.snapshot(id, 'v1')).operation.success()
  const restored = await disks.restore(id, 'v1')
  await restored.operation.success()
  const copy = await disks.make({ from_snapshot: { disk_id: id, name: 'v1' } })
  const stopped = await containers.make({ start: false })
  for (const disk_id of [id, restored.id, copy.id]) {
    const mount = { disk_id, mount_path: '/data' }
    const body = { name: 'taker', image: 'busybox', cpu_cores: 0.1, memory_mib: 16, disks: [mount] }
    expect(await owner.ask('POST', '/api/v1/containers', body)).toMatchObject(isRefused)
    expect(await owner.ask('POST', `/api/v1/containers/${stopped.id}/disks`, mount)).toMatchObject(isRefused)
    expect(await disks.get(disk_id)).toMatchObject({ status: 'available', attached_to: null })
  }
  // A machine still gets it.
  await (await microvms.attach(machine.id, copy.id)).operation.success()
})

onlyRoot('a disk that a microVM had read-only comes to a container', async () => {
  const { containers, disks, microvms } = await makeTenant()
  const { id } = await disks.make()
  const machine = await microvms.make({ start: false })
  await (await microvms.attach(machine.id, id, '/data', { read_only: true })).operation.success()
  await (await microvms.detach(machine.id, id)).operation.success()
  const { status } = await containers.make({ disks: [{ disk_id: id, mount_path: '/data' }] })
  expect(status).toBe('running')
})
