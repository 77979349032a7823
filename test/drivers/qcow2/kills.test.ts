import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from '@jest/globals'
import { newId } from '../../../lib/ids.ts'
import { shell } from '../../support/containers.ts'
import { type DiskHost, inContainer, kernelTraces, pidOf } from '../../support/disk-hosts.ts'
import {
  newDisk,
  written,
  restore,
  running,
  attachTo,
  imageOf,
  isSound,
  run,
  here,
  there,
  untilMounted,
  withHosts,
} from '../../support/disk-tests.ts'
import { eventually } from '../../support/eventually.ts'
import { killedAfter as killed } from '../../support/killed-worker.ts'
import { sampled } from '../../support/sampled.ts'

withHosts('disks', () => {
  describe('after a kill', () => {
    test('of its daemon, a disk is broken, is restored in its container, and keeps its synced data', async () => {
      const id = await newDisk(1)
      const container = await running(shell(`${untilMounted}; exec sleep 600 > /data/open`))
      await attachTo(container, id)
      await inContainer(
        container,
        'echo kept > /data/file; sync; while [ ! -e /data/open ]; do sleep 0.05; done',
      )
      await killDaemon(id)
      expect(await here.disks.find(id)).toMatchObject({ state: 'broken' })
      await expect(
        inContainer(container, 'dd if=/dev/zero of=/data/other bs=1 count=1 conv=fsync'),
      ).rejects.toThrow()

      await here.disks.attach(id)
      expect(await here.disks.find(id)).toMatchObject({ state: 'attached' })
      expect(await inContainer(container, 'cat /data/file')).toBe('kept')
      await inContainer(container, 'echo more > /data/file')
      await here.disks.detach(id)
      await isSound(id)
    })

    test('of its daemon, a disk can be detached', async () => {
      const id = await newDisk(1)
      const container = await running()
      await attachTo(container, id)
      await killDaemon(id)
      await here.disks.detach(id)
      await eventually(async () => (await kernelTraces(here.settings.run)).length === 0)
      expect(await inContainer(container, 'ls /data')).toBe('')
    })

    test.each(moments())('of a worker that creates after %d ms, a disk is whole or absent', async (ms) => {
      const id = newId()
      await killedAfter(ms, here, 'create', [{ id, size_gib: 1 }])
      const found = await here.disks.find(id)
      if (found) await isSound(id)
      await here.disks.create({ id, size_gib: 1 })
      await isSound(id)
      expect(await readdir(join(here.settings.folder, id))).toEqual(['disk.qcow2'])
    })

    test.each(moments())(
      'of a worker that attaches or detaches after %d ms, a retry completes',
      async (ms) => {
        const id = await newDisk(1)
        const container = await running()
        const to = { pid: await pidOf(container), mount_path: '/data' }
        await killedAfter(ms, here, 'attach', [id, to])
        await here.disks.attach(id, to)
        await inContainer(container, 'echo kept > /data/file')
        await killedAfter(ms, here, 'detach', [id])
        await here.disks.detach(id)
        expect(await kernelTraces(here.settings.run)).toEqual([])
        await here.disks.attach(id, to)
        expect(await inContainer(container, 'cat /data/file')).toBe('kept')
      },
    )

    test.each(moments())(
      'of a worker that takes a snapshot after %d ms, it is whole or absent, and no writer hangs',
      async (ms) => {
        const id = await newDisk(1)
        const container = await running()
        await attachTo(container, id)
        await inContainer(container, 'head -c 10000000 /dev/urandom > /data/file')
        const sum = await inContainer(container, 'md5sum < /data/file')
        await killedAfter(ms, here, 'snapshot', [id, 'one'])
        await inContainer(container, 'echo later > /data/later; sync')
        await here.disks.snapshot(id, 'one')
        expect((await readdir(join(here.settings.folder, id))).toSorted()).toEqual([
          'disk.qcow2',
          'snapshots',
        ])
        await attachTo(container, await restore(id, 'one'), '/restored')
        expect(await inContainer(container, 'md5sum < /restored/file')).toBe(sum)
      },
    )

    test.each(moments())('of a worker that pulls after %d ms, a disk is whole or absent', async (ms) => {
      const id = await written(10)
      const source = await here.disks.serve(id, 60)
      await killedAfter(ms, there, 'pull', [id, source])
      if (await there.disks.find(id)) await run('qemu-img', ['compare', imageOf(id), imageOf(id, there)])
      await there.disks.pull(id, source)
      await here.disks.stopServing(id)
      await run('qemu-img', ['compare', imageOf(id), imageOf(id, there)])
      expect(await readdir(join(there.settings.folder, id))).toEqual(['disk.qcow2'])
    })
  })
})

async function killDaemon(id: string): Promise<void> {
  const [traces] = (await here.disks.list()).filter((one) => one.id === id)
  for (const pid of traces?.processes ?? []) process.kill(pid, 'SIGKILL')
  await eventually(async () => (await here.disks.find(id))?.state === 'broken')
}

/** Spread over the time that the work takes on this machine. */
function moments(): number[] {
  return sampled(
    Array.from({ length: 30 }, (_, i) => i * 7),
    1,
  )
}

const killedAfter = (ms: number, { settings }: DiskHost, method: string, args: unknown[]): Promise<void> =>
  killed(ms, 'disk-worker.ts', [settings, method, args])
