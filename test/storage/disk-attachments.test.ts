import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { temporalClient } from '../../lib/temporal.ts'
import type { Json, Operation } from '../support/client.ts'
import { shell } from '../support/client.ts'
import { forgetDisk, pidsServing } from '../support/disk-traces.ts'
import { testDrawn } from '../support/drawn.ts'
import { docker, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { runInside } from '../support/inside.ts'
import { kernelTraces } from '../support/kernel-traces.ts'
import { platform, startAll } from '../support/platform.ts'
import { stackSettings } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Disks in containers: which container has a disk, and that the disk stays there whatever happens to the container.

const temporal = temporalClient(stackSettings())
let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
afterEach(startAll)
afterAll(() => temporal.connection.close())

const inside = (id: string, script: string): Promise<string> => runInside(docker, `keelson-${id}`, script)
const mounted = (id: string, path = '/data'): Promise<boolean> =>
  inside(id, `grep -c " ${path} xfs " /proc/mounts`).then(
    (lines) => lines === '1',
    () => false,
  )

async function attached(over: Json = {}): Promise<{ container: string; disk: string }> {
  const { id: disk } = await tenant.disks.make()
  const { id: container } = await tenant.containers.make(over)
  await (await tenant.containers.attach(container, disk)).operation.success()
  return { container, disk }
}

/** How often the step that an operation takes has begun. */
async function triesOf(operation: Operation): Promise<number> {
  const { raw } = await temporal.workflow.getHandle((await operation.now()).workflow_id).describe()
  return raw.pendingActivities?.[0]?.attempt ?? 0
}

/** A process in the container's mounts, but not in the container, that has a file of the disk open. */
const holdOpen = (pid: number) =>
  spawn('nsenter', ['-t', String(pid), '-m', 'sh', '-c', 'exec 3>/data/held; echo held; exec sleep 600'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })

describe('attach and detach', () => {
  test('mount and unmount a disk in a running container, and its data stays', async () => {
    const { container, disk } = await attached()
    expect(await mounted(container)).toBe(true)
    expect(await tenant.containers.get(container)).toMatchObject({
      status: 'running',
      disks: [{ disk_id: disk, mount_path: '/data', read_only: false }],
    })
    expect(await tenant.disks.get(disk)).toMatchObject({
      status: 'attached',
      attached_to: { kind: 'container', id: container, mount_path: '/data', read_only: false },
    })
    await inside(container, 'echo kept > /data/file')
    await (await tenant.containers.detach(container, disk)).operation.success()
    expect(await mounted(container)).toBe(false)
    expect(await tenant.containers.get(container)).toMatchObject({ disks: [] })
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'available', attached_to: null })

    const other = await tenant.containers.make({
      disks: [{ disk_id: disk, mount_path: '/mnt/data', read_only: true }],
    })
    expect(await inside(other.id, 'cat /mnt/data/file')).toBe('kept')
    await expect(inside(other.id, 'touch /mnt/data/file')).rejects.toThrow(/read-only/i)
  })

  test('are recorded for a stopped container, which has its disks before its command begins', async () => {
    const { id: disk } = await tenant.disks.make()
    const { id } = await tenant.containers.make({
      ...shell('grep -q " /data xfs " /proc/mounts && echo there >> /data/starts; sleep 3600'),
      start: false,
    })
    await (await tenant.containers.attach(id, disk)).operation.success()
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'attached' })
    await (await tenant.containers.start(id)).operation.success()
    await eventually(async () => (await inside(id, 'cat /data/starts')) === 'there')
    await (await tenant.containers.stop(id)).operation.success()
    expect(await kernelTraces(disk)).toEqual([])
    await (await tenant.containers.start(id)).operation.success()
    await eventually(async () => (await inside(id, 'cat /data/starts')) === 'there\nthere')
  })

  test('refuse to detach a disk in use, which the container keeps', async () => {
    const { container, disk } = await attached()
    const holding = inside(container, 'cd /data; touch begun; sleep 3600').catch(() => null)
    await eventually(async () => (await inside(container, 'ls /data')) === 'begun')
    const { state, error } = await (await tenant.containers.detach(container, disk)).operation.end()
    expect({ state, error }).toMatchObject({ state: 'failed', error: { code: 'disk_in_use' } })
    expect(error?.detail).toBe('The instance still has files open below /data')
    expect(await tenant.containers.get(container)).toMatchObject({ disks: [{ disk_id: disk }] })
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'attached', attached_to: { id: container } })
    expect(await mounted(container)).toBe(true)
    await (await tenant.containers.delete(container)).operation.success()
    await holding
  })

  test('end with the container, also while one of its processes takes long to end', async () => {
    const { container, disk } = await attached()
    const held = holdOpen((await engine.only(container)).State.Pid)
    await once(held.stdout, 'data')
    const { operation } = await tenant.containers.delete(container)
    await eventually(async () => (await triesOf(operation)) > 1)
    held.kill()
    await operation.success()
    expect(await kernelTraces(disk)).toEqual([])
  })

  test('fail for a path that cannot be mounted on, and free the disk', async () => {
    const { id: disk } = await tenant.disks.make()
    const { id } = await tenant.containers.make()
    const { error } = await (await tenant.containers.attach(id, disk, '/etc/passwd')).operation.end()
    expect(error).toMatchObject({ code: 'engine_refused' })
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'available', attached_to: null })
    expect(await tenant.containers.get(id)).toMatchObject({ status: 'running', disks: [] })
    expect(await kernelTraces(disk)).toEqual([])
  })

  testDrawn('give a disk to one of twenty containers that ask for it in parallel', async () => {
    const { id: disk } = await tenant.disks.make()
    const ids: string[] = []
    for (let i = 0; i < 20; i++) ids.push((await tenant.containers.make({ start: false })).id)
    const answers = await Promise.all(
      ids.map((id) => tenant.owner.ask('POST', path(id), { disk_id: disk, mount_path: '/data' })),
    )
    expect(answers.filter(({ status }) => status === 202)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(19)
    const winner = ids[answers.findIndex(({ status }) => status === 202)]
    expect(await tenant.disks.get(disk)).toMatchObject({ attached_to: { id: winner } })
  })

  testDrawn('keep a disk that grows while it is attached; the container sees the new size', async () => {
    const { container, disk } = await attached()
    await inside(container, 'echo kept > /data/file')
    await (await tenant.disks.update(disk, { size_gib: 3 })).operation.success()
    const size = await inside(container, "df -k /data | tail -n 1 | awk '{print $2}'")
    expect(Number(size)).toBeGreaterThan(2.8 * 1024 ** 2)
    expect(await inside(container, 'cat /data/file')).toBe('kept')
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'attached', size_gib: 3 })
  })
})

const path = (id: string): string => `/api/v1/containers/${id}/disks`

describe('a refused attachment', () => {
  test('is one of an unknown disk or another tenant’s, to a taken path or to an invalid one', async () => {
    const { container, disk } = await attached()
    const other = await makeTenant()
    const { id: theirs } = await other.disks.make()
    const { id: mine } = await tenant.disks.make()
    const ask = (disk_id: string, mount_path = '/other') =>
      tenant.owner.ask('POST', path(container), { disk_id, mount_path })
    for (const id of [theirs, newId()]) expect(await ask(id)).toMatchObject({ status: 404 })
    expect(await ask(disk)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', state: 'attached' },
    })
    for (const inner of ['/data', '/data/below'])
      expect(await ask(mine, inner)).toMatchObject({ status: 409, body: { code: 'mount_path_taken' } })
    for (const wrong of ['/', 'data', '/data/', '/a/../b', '/proc/self', ''])
      expect(await ask(mine, wrong)).toMatchObject({ status: 422 })
    expect(await tenant.disks.get(mine)).toMatchObject({ status: 'available' })
    const absent = await tenant.owner.ask('DELETE', `${path(container)}/${mine}`)
    expect(absent).toMatchObject({ status: 404 })
  })

  testDrawn('frees the disk if the container is refused, and keeps it if the container fails', async () => {
    const { id: disk } = await tenant.disks.make()
    const disks = [{ disk_id: disk, mount_path: '/data' }]
    const small = await makeTenant({ max_cpu_cores: 1 })
    const { id: its } = await small.disks.make()
    const answer = await small.owner.ask('POST', '/api/v1/containers', {
      name: 'large',
      image: 'busybox',
      cpu_cores: 2,
      memory_mib: 16,
      disks: [{ disk_id: its, mount_path: '/data' }],
    })
    expect(answer).toMatchObject({ status: 409, body: { code: 'quota_exceeded' } })
    expect(await small.disks.get(its)).toMatchObject({ status: 'available', attached_to: null })

    const { id, operation } = await tenant.containers.create({ command: ['false'], disks })
    expect(await operation.end()).toMatchObject({ state: 'failed' })
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'attached', attached_to: { id } })
    expect(await kernelTraces(disk)).toEqual([])
    await (await tenant.containers.delete(id)).operation.success()
    expect(await tenant.disks.get(disk)).toMatchObject({ status: 'available' })
  })
})

describe('attached disks', () => {
  testDrawn('survive engine restarts of a container, attached at creation or at run time', async () => {
    const { container: live } = await attached()
    const { id: disk } = await tenant.disks.make()
    const made = await tenant.containers.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
    for (const id of [live, made.id]) {
      await inside(id, 'echo kept > /data/file; sync')
      await engine.kill(id)
      await eventually(async () => (await inside(id, 'cat /data/file')) === 'kept')
      expect(await mounted(id)).toBe(true)
    }
  })

  test('survive a restart of the host worker, and are mounted again in containers restarted meanwhile', async () => {
    const { container } = await attached()
    await inside(container, 'echo kept > /data/file; sync')
    await platform.kill('host')
    await inside(container, 'echo more >> /data/file')
    await docker.getContainer(`keelson-${container}`).restart({ t: 0 })
    await platform.start('host')
    await eventually(async () => (await inside(container, 'cat /data/file')) === 'kept\nmore')
  })

  test('are mounted again after a reboot, before any command runs', async () => {
    const { id: disk } = await tenant.disks.make()
    const { id } = await tenant.containers.make({
      ...shell('echo started >> /data/file; sync; exec sleep 3600'),
      disks: [{ disk_id: disk, mount_path: '/data' }],
    })
    await eventually(async () => (await inside(id, 'cat /data/file')) === 'started')
    await platform.kill('host')
    const container = docker.getContainer(`keelson-${id}`)
    await container.update({ RestartPolicy: { Name: 'no' } })
    await container.kill()
    await forgetDisk(disk)
    await expect(container.start()).rejects.toThrow(/no such file|does not exist/)
    await platform.start('host')
    await eventually(async () => (await inside(id, 'cat /data/file')) === 'started\nstarted')
    await eventually(async () => (await tenant.containers.get(id)).status === 'running')
    expect((await tenant.containers.activity(id)).map(({ kind }) => kind)).toContain('repair')
  })

  testDrawn('are restored after a kill of the disk’s daemon, and the activity feed records it', async () => {
    const { container, disk } = await attached()
    await inside(container, 'echo kept > /data/file; sync')
    const [daemon = ''] = pidsServing(disk)
    process.kill(Number(daemon), 'SIGKILL')
    await eventually(async () => (await inside(container, 'cat /data/file')) === 'kept')
    await inside(container, 'echo more >> /data/file; sync')
    const kinds = async () => (await tenant.containers.activity(container)).map(({ kind }) => kind)
    await eventually(async () => (await kinds()).includes('disk_sound'))
    expect(await kinds()).toEqual(['created', 'disk_broken', 'disk_sound'])
    expect(await tenant.disks.get(disk)).toMatchObject({
      condition: 'sound',
      status: 'attached',
      status_reason: null,
    })
  })
})

describe('a container’s end', () => {
  testDrawn('frees its disk if the container ends by itself', async () => {
    const { id: disk } = await tenant.disks.make()
    const { id } = await tenant.containers.make({
      ...shell('echo done > /data/file; sync; sleep 2'),
      restart_policy: 'never',
      disks: [{ disk_id: disk, mount_path: '/data' }],
    })
    await eventually(async () => (await tenant.containers.get(id)).status === 'stopped')
    await (await tenant.containers.detach(id, disk)).operation.success()
    const reader = await tenant.containers.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
    expect(await inside(reader.id, 'cat /data/file')).toBe('done')
  })
})
