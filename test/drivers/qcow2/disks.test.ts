import { readdir, rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from '@jest/globals'
import { mountInside } from '../../../drivers/linux/mounts.ts'
import { userOf } from '../../../drivers/system/confinement.ts'
import { processesWith } from '../../../drivers/system/programs.ts'
import { newId } from '../../../lib/ids.ts'
import { confinementOf, dacOverride, sysAdmin } from '../../support/confinement.ts'
import { docker, shell, testTenant } from '../../support/containers.ts'
import { inContainer, kernelTraces, pidOf } from '../../support/disk-hosts.ts'
import {
  newDisk,
  restore,
  running,
  attachTo,
  imageOf,
  isSound,
  run,
  gibibyte,
  here,
  untilMounted,
  withHosts,
} from '../../support/disk-tests.ts'
import { eventually } from '../../support/eventually.ts'

const tracesOf = async (id: string) => (await here.disks.list()).find((one) => one.id === id)

withHosts('disks', () => {
  describe('a disk that others unmount lazily', () => {
    test.each([
      ['its file system', ['files']],
      ['its file system and its raw file', ['files', 'raw']],
    ])('leaves no loop device once it is detached: %s', async (_, paths) => {
      const id = await newDisk(1)
      await here.disks.attach(id)
      const [loop] = (await tracesOf(id))?.loop_devices ?? []
      for (const path of paths) await run('umount', ['--lazy', join(here.settings.run, id, path)])
      expect((await tracesOf(id))?.loop_devices).toEqual([loop])
      await here.disks.detach(id)
      expect(await kernelTraces(id)).toEqual([])
      await here.disks.attach(id)
      await here.disks.detach(id)
    })
  })

  describe('create, resize and remove', () => {
    test('a disk is created once, however often it is retried, and takes little space while it is empty', async () => {
      const id = newId()
      const made = await here.disks.create({ id, size_gib: 2 })
      expect(made).toMatchObject({ id, size_bytes: 2 * gibibyte, state: 'detached', snapshots: [] })
      expect(made.allocated_bytes).toBeLessThan(16 * 1024 ** 2)
      expect(await here.disks.create({ id, size_gib: 2 })).toEqual(made)
      expect(await here.disks.find(newId())).toBeNull()
    })

    test('the daemon of an attached disk has the capabilities that it needs, and no way to get others', async () => {
      const id = await newDisk(1)
      const daemon = async () =>
        (await processesWith(`/${id}/`)).find(({ args }) => args[0]?.endsWith('qemu-storage-daemon'))?.pid ??
        null
      await here.disks.plug(id, newId())
      const forHost = [dacOverride, sysAdmin]
      expect(await confinementOf(await daemon())).toMatchObject({
        user: userOf(id),
        capabilities: [],
        most_capabilities: [],
        no_new_privileges: true,
      })
      await here.disks.detach(id)
      await here.disks.attach(id)
      expect(await confinementOf(await daemon())).toMatchObject({
        capabilities: forHost,
        most_capabilities: forHost,
        no_new_privileges: true,
      })
      await here.disks.detach(id)
    })

    // What a machine's guest could do once it has broken into the daemon of its disk, which may write the image.
    test.each([
      ['a backing file', (file: string, other: string) => ['-b', other, '-F', 'raw', file]],
      ['a data file', (file: string, other: string) => ['-o', `data_file=${other}`, file, '1G']],
    ])('a disk whose image refers to %s of the host is not opened, and can be removed', async (_, args) => {
      const id = await newDisk(1)
      const other = join(here.settings.run, 'other')
      await writeFile(other, 'of another tenant')
      await truncate(other, gibibyte)
      await run('qemu-img', ['create', '-q', '-f', 'qcow2', ...args(imageOf(id), other)])
      const uses = [
        () => here.disks.attach(id),
        () => here.disks.plug(id, newId()),
        () => here.disks.resize(id, 2),
        () => here.disks.snapshot(id, 'taken'),
        () => here.disks.serve(id, 60),
      ]
      for (const use of uses) await expect(use()).rejects.toThrow('The disk’s image refers to other files')
      await here.disks.remove(id)
      await rm(other)
    })

    test('a detached disk grows, and never shrinks', async () => {
      const id = await newDisk(1)
      expect(await here.disks.resize(id, 2)).toMatchObject({ size_bytes: 2 * gibibyte })
      expect(await here.disks.resize(id, 2)).toMatchObject({ size_bytes: 2 * gibibyte })
      await expect(here.disks.resize(id, 1)).rejects.toMatchObject({
        code: 'engine_refused',
        permanent: true,
      })
      const container = await running()
      await attachTo(container, id)
      expect(await sizeInside(container)).toBeGreaterThan(1.8 * gibibyte)
    })

    test('a disk grows while a container uses it', async () => {
      const id = await newDisk(1)
      const container = await running()
      await attachTo(container, id)
      await inContainer(container, 'echo before > /data/file')
      await here.disks.resize(id, 3)
      expect(await sizeInside(container)).toBeGreaterThan(2.8 * gibibyte)
      expect(await inContainer(container, 'cat /data/file')).toBe('before')
    })

    test('a disk that would not fit on the host is refused before anything is written', async () => {
      const { free_bytes, promised_bytes } = await here.disks.space()
      const tooMuch = Math.ceil((free_bytes - promised_bytes) / gibibyte) + 1
      const [id, other] = [newId(), await newDisk(1)]
      await expect(here.disks.create({ id, size_gib: tooMuch })).rejects.toMatchObject({
        code: 'host_disk_full',
      })
      await expect(here.disks.resize(other, tooMuch + 1)).rejects.toMatchObject({ code: 'host_disk_full' })
      expect(await here.disks.find(id)).toBeNull()
    })

    test('the space that disks may still take is reserved', async () => {
      const before = await here.disks.space()
      await newDisk(4)
      const after = await here.disks.space()
      expect(after.promised_bytes - before.promised_bytes).toBeGreaterThan(3.9 * gibibyte)
    })

    test('a removal leaves nothing, and removing a missing disk succeeds', async () => {
      const id = await newDisk(1)
      await here.disks.attach(id)
      await here.disks.snapshot(id, 'one')
      await expect(here.disks.remove(id)).rejects.toMatchObject({ code: 'disk_attached', permanent: true })
      const [traces] = await here.disks.list()
      expect(traces).toMatchObject({
        id,
        processes: [expect.any(Number)],
        loop_devices: [expect.any(String)],
      })
      expect(traces?.mounts).toHaveLength(2)
      await here.disks.detach(id)
      await here.disks.remove(id)
      await here.disks.remove(id)
      expect(await here.disks.list()).toEqual([])
      expect(await kernelTraces(id)).toEqual([])
    })

    test.each(['', '..', 'a/b', '../x', 'A B', 'x'.repeat(37)])('the disk id %j is refused', async (id) => {
      await expect(here.disks.create({ id, size_gib: 1 })).rejects.toMatchObject({ code: 'engine_refused' })
    })
  })

  describe('attach and detach', () => {
    test('a disk that moves between containers keeps its data', async () => {
      const id = await newDisk(1)
      const [first, second] = [await running(), await running()]
      await attachTo(first, id, '/var/lib/some app/data')
      await attachTo(first, id, '/var/lib/some app/data')
      await inContainer(first, 'echo kept > "/var/lib/some app/data/file"')
      await here.disks.detach(id)
      await expect(inContainer(first, 'cat "/var/lib/some app/data/file"')).rejects.toThrow()
      await here.disks.detach(id)

      await attachTo(second, id)
      expect(await inContainer(second, 'cat /data/file')).toBe('kept')
      expect(await here.disks.find(id)).toMatchObject({ state: 'attached' })
    })

    test('a read-only disk cannot be written, and can be made writable', async () => {
      const id = await newDisk(1)
      const container = await running()
      const to = { pid: await pidOf(container), mount_path: '/data' }
      await here.disks.attach(id, { ...to, read_only: true })
      await expect(inContainer(container, 'touch /data/file')).rejects.toThrow(/read-only/i)
      await here.disks.attach(id, to)
      await inContainer(container, 'touch /data/file')
    })

    test('several disks in one container are independent', async () => {
      const ids = [await newDisk(1), await newDisk(1)]
      const container = await running()
      await Promise.all(ids.map((id, index) => attachTo(container, id, `/disks/${index}`)))
      await inContainer(container, 'echo 0 > /disks/0/file; echo 1 > /disks/1/file')
      await here.disks.detach(ids[0] ?? '')
      expect(await inContainer(container, 'ls /disks/0; cat /disks/1/file')).toBe('1')
    })

    test('mounts that begin at one moment share the new folders above them', async () => {
      const container = await running()
      const pid = await pidOf(container)
      const above = `/${'deep/'.repeat(100)}`
      const paths = Array.from({ length: 8 }, (_, index) => `${above}${index}`)
      await Promise.all(paths.map((mount_path) => mountInside(import.meta.dirname, { pid, mount_path })))
      expect(await inContainer(container, `ls ${above}`)).toBe('0  1  2  3  4  5  6  7')
    })

    test('a disk in use is not detached; the refusal says so', async () => {
      const id = await newDisk(1)
      const container = await running(shell(`${untilMounted}; cd /data; exec sleep 600`))
      await attachTo(container, id)
      await eventually(async () =>
        /^\/data$/.test(
          await inContainer(container, 'for p in /proc/[0-9]*; do readlink $p/cwd; done | grep /data'),
        ),
      )
      const error = await here.disks.detach(id).catch((thrown: unknown) => thrown)
      expect(error).toMatchObject({ code: 'disk_in_use', permanent: true, mountPath: '/data' })
      await inContainer(container, 'touch /data/still-there')
      await docker.getContainer(container).remove({ force: true })
      await here.disks.detach(id)
    })

    test('a retry attaches a disk again after a restart of its container', async () => {
      const id = await newDisk(1)
      const container = await running()
      await attachTo(container, id)
      await inContainer(container, 'echo kept > /data/file')
      await docker.getContainer(container).restart({ t: 0 })
      await attachTo(container, id)
      expect(await inContainer(container, 'cat /data/file')).toBe('kept')
    })

    test('a container that is created with a disk’s folder keeps the disk over its restarts', async () => {
      const id = await newDisk(1)
      const { host_path } = await here.disks.attach(id)
      const container = await withFolder(host_path)
      await inContainer(container.id, 'echo kept > /data/file')
      await container.restart({ t: 0 })
      expect(await inContainer(container.id, 'cat /data/file')).toBe('kept')
      await here.disks.detach(id)
      expect(await inContainer(container.id, 'ls /data')).toBe('')
      // The start fails, so that the container cannot write to the host.
      await expect(container.restart({ t: 0 })).rejects.toThrow(/no such file|does not exist/)
    })

    test('a link in the container leads only inside the container', async () => {
      const id = await newDisk(1)
      const container = await running()
      await inContainer(
        container,
        `mkdir /inner && ln -s ${here.settings.folder} /data && ln -s ../../../../etc /up`,
      )
      await expect(attachTo(container, id, '/data/escaped')).rejects.toMatchObject({ code: 'engine_refused' })
      await attachTo(container, id, '/up/escaped')
      expect(await inContainer(container, 'ls -d /etc/escaped')).toBe('/etc/escaped')
      expect(await readdir('/etc')).not.toContain('escaped')
      expect(await readdir(here.settings.folder)).toEqual([id])
    })

    test('only existing disks and containers can be attached', async () => {
      const id = await newDisk(1)
      const container = await running()
      await expect(attachTo(container, newId())).rejects.toMatchObject({ code: 'disk_not_found' })
      const into = (pid: number) => here.disks.attach(id, { pid, mount_path: '/data' })
      await expect(into(process.pid)).rejects.toMatchObject({ code: 'engine_refused' })
      await expect(into(2 ** 22 + 1)).rejects.toMatchObject({ code: 'instance_not_found' })
      await expect(attachTo(container, id, '/etc/passwd')).rejects.toMatchObject({ code: 'engine_refused' })
      await expect(attachTo(container, id, '/etc/passwd/below')).rejects.toMatchObject({
        code: 'engine_refused',
      })
    })
  })

  describe('snapshots of a disk', () => {
    test('hold all earlier writes completely', async () => {
      const id = await newDisk(1)
      const writer = await running(
        shell(
          'while [ ! -e /data/go ]; do sleep 0.02; done; i=0; while true; do i=$((i+1)); echo $i >> /data/a; echo $i >> /data/b; done',
        ),
      )
      await attachTo(writer, id)
      await inContainer(writer, 'touch /data/go')
      await eventually(async () => (await lines(writer, 'b')) > 100)

      const before = await lines(writer, 'b')
      const taken = await here.disks.snapshot(id, 'under-load')
      const later = await lines(writer, 'b')
      expect(await here.disks.snapshot(id, 'under-load')).toEqual(taken)
      await eventually(async () => (await lines(writer, 'b')) > later) // no reader waits any longer

      const restored = await restore(id, 'under-load')
      const reader = await running()
      await attachTo(reader, restored)
      const [a, b] = [await lines(reader, 'a'), await lines(reader, 'b')]
      expect(b).toBeGreaterThanOrEqual(before)
      expect([0, 1]).toContain(a - b)
      expect(await inContainer(reader, `tail -n 1 /data/b`)).toBe(String(b))
      await here.disks.detach(restored)
      await isSound(restored)
    })

    test('restore to an independent disk with equal content, also to a larger one', async () => {
      const id = await newDisk(1)
      const container = await running()
      await attachTo(container, id)
      await inContainer(container, 'head -c 20000000 /dev/urandom > /data/file')
      const sum = await inContainer(container, 'md5sum < /data/file')
      await here.disks.detach(id)
      await here.disks.snapshot(id, 'v1')
      await attachTo(container, id)
      await inContainer(container, 'echo changed > /data/file')

      const restored = await restore(id, 'v1')
      await run('qemu-img', [
        'compare',
        imageOf(restored),
        join(here.settings.folder, id, 'snapshots', 'v1.qcow2'),
      ])
      const larger = newId()
      await here.disks.create({ id: larger, size_gib: 2, from: { disk_id: id, snapshot: 'v1' } })
      await here.disks.detach(id)
      await here.disks.remove(id)

      for (const copy of [restored, larger]) {
        await attachTo(container, copy, `/copies/${copy}`)
        expect(await inContainer(container, `md5sum < /copies/${copy}/file`)).toBe(sum)
      }
      expect(await sizeInside(container, `/copies/${larger}`)).toBeGreaterThan(1.8 * gibibyte)
    })

    test('are listed by age, removed by name, and refused if they do not exist', async () => {
      const id = await newDisk(1)
      for (const name of ['b', 'a', 'c.1_x']) await here.disks.snapshot(id, name)
      await here.disks.removeSnapshot(id, 'a')
      await here.disks.removeSnapshot(id, 'a')
      expect((await here.disks.find(id))?.snapshots.map(({ name }) => name)).toEqual(['b', 'c.1_x'])
      const from = { disk_id: id, snapshot: 'a' }
      await expect(here.disks.create({ id: newId(), size_gib: 1, from })).rejects.toMatchObject({
        code: 'snapshot_not_found',
      })
      await expect(here.disks.snapshot(id, '../disk')).rejects.toMatchObject({ code: 'engine_refused' })
      await expect(here.disks.snapshot(newId(), 'a')).rejects.toMatchObject({ code: 'disk_not_found' })
    })
  })
})

async function withFolder(folder: string) {
  const container = await docker.createContainer({
    Image: 'busybox',
    Cmd: ['sleep', '600'],
    Labels: { 'keelson.tenant': testTenant },
    HostConfig: { Mounts: [{ Type: 'bind', Source: folder, Target: '/data' }] },
  })
  await container.start()
  return container
}

const lines = async (container: string, file: string): Promise<number> =>
  Number(await inContainer(container, `wc -l < /data/${file}`))

const sizeInside = async (container: string, path = '/data'): Promise<number> =>
  1024 * Number(await inContainer(container, `df -k ${path} | tail -n 1 | awk '{print $2}'`))
