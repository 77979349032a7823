import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from '@jest/globals'
import { newId } from '../../../lib/ids.ts'
import { diskHost, kernelTraces } from '../../support/disk-hosts.ts'
import { newDisk, written, imageOf, run, gibibyte, here, there, withHosts } from '../../support/disk-tests.ts'
import { eventually } from '../../support/eventually.ts'

withHosts('disk transfers', () => {
  describe('a migration', () => {
    test('copies a disk with its snapshots, byte for byte, and reports its progress', async () => {
      const id = await written(30)
      await here.disks.snapshot(id, 'before')
      const source = await here.disks.serve(id, 60)
      const seen: number[] = []
      const pulled = await there.disks.pull(id, source, { onProgress: (percent) => seen.push(percent) })
      expect(pulled).toMatchObject({
        size_bytes: gibibyte,
        state: 'detached',
        snapshots: [{ name: 'before' }],
      })
      expect(seen).toEqual(seen.toSorted((a, b) => a - b))
      expect(seen.some((percent) => percent > 10 && percent < 90)).toBe(true)
      expect(seen.at(-1)).toBeCloseTo(100)
      await here.disks.stopServing(id)
      await run('qemu-img', ['compare', imageOf(id), imageOf(id, there)])
      expect(await there.disks.pull(id, await here.disks.serve(id, 60))).toMatchObject({ state: 'detached' })
    })

    test('may be the first work with disks after a boot: machines pass through the folders that it makes', async () => {
      const { disks, settings } = await diskHost()
      const id = newId()
      await disks.create({ id, size_gib: 1 })
      await disks.serve(id, 60)
      for (const folder of [settings.run, join(settings.run, id)])
        expect((await stat(folder)).mode & 0o011).toBe(0o011)
      await disks.stopServing(id)
    })

    test('takes no image from another host that refers to files of this one', async () => {
      const id = await newDisk(1)
      const source = await here.disks.serve(id, 60)
      // A host that was broken into serves what it likes.
      await run('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', '/etc/hostname', '-F', 'raw', imageOf(id)])
      await expect(there.disks.pull(id, source)).rejects.toThrow('The disk’s image refers to other files')
      await here.disks.stopServing(id)
      expect(await there.disks.find(id)).toBeNull()
    })

    test('ends if the source disappears in the middle, and leaves nothing', async () => {
      const id = await written(16)
      const source = await here.disks.serve(id, 60)
      let stopped: Promise<void> | undefined
      const onProgress = () => void (stopped ??= here.disks.stopServing(id))
      const pulling = there.disks.pull(id, source, { bytesPerSec: 4 * 1024 ** 2, onProgress })
      await expect(pulling).rejects.toMatchObject({ code: 'engine_unavailable' })
      await stopped
      expect(await there.disks.find(id)).toBeNull()
      expect(await kernelTraces(there.settings.folder)).toEqual([])
    })

    test('takes no space for blocks that were written once and are empty now', async () => {
      const id = await written(4)
      const { host_path } = await here.disks.attach(id)
      await run('dd', ['if=/dev/zero', `of=${host_path}/nothing`, 'bs=1M', 'count=64', 'conv=fsync'])
      await here.disks.detach(id)
      const found = await there.disks.pull(id, await here.disks.serve(id, 60))
      await here.disks.stopServing(id)
      await run('qemu-img', ['compare', imageOf(id), imageOf(id, there)])
      expect(found.allocated_bytes).toBeLessThan(16 * 1024 ** 2)
    })

    test('keeps to its bandwidth limit', async () => {
      const id = await written(32)
      const source = await here.disks.serve(id, 60)
      const begun = performance.now()
      await there.disks.pull(id, source, { bytesPerSec: 16 * 1024 ** 2 })
      // The limit first lets a burst through.
      expect(performance.now() - begun).toBeGreaterThan(1_000)
    })

    test('needs the key, and ends after its time', async () => {
      const id = await newDisk(1)
      const source = await here.disks.serve(id, 60)
      const wrong = { ...source, key: 'f'.repeat(64) }
      await expect(there.disks.pull(id, wrong)).rejects.toMatchObject({ code: 'engine_unavailable' })
      expect(await there.disks.find(id)).toBeNull()
      // Long enough to start on a busy machine.
      await here.disks.serve(id, 8)
      expect(await here.disks.find(id)).toMatchObject({ state: 'migrating' })
      await eventually(async () => (await here.disks.find(id))?.state === 'detached')
    })

    test('is refused while the disk is attached at either end, and the source stays unchanged meanwhile', async () => {
      const id = await newDisk(1)
      await here.disks.attach(id)
      await expect(here.disks.serve(id, 60)).rejects.toMatchObject({ code: 'disk_attached' })
      await here.disks.detach(id)
      const source = await here.disks.serve(id, 60)
      for (const refused of [
        here.disks.attach(id),
        here.disks.resize(id, 2),
        here.disks.remove(id),
        here.disks.snapshot(id, 'now'),
      ])
        await expect(refused).rejects.toMatchObject({ code: 'disk_migrating' })

      await there.disks.pull(id, source)
      await there.disks.attach(id)
      await expect(there.disks.pull(id, source)).rejects.toMatchObject({ code: 'disk_attached' })
    })

    test('that is aborted leaves nothing', async () => {
      const id = await written(16)
      const source = await here.disks.serve(id, 60)
      const abort = new AbortController()
      const options = {
        signal: abort.signal,
        bytesPerSec: 1024 ** 2,
        onProgress: () => abort.abort(new Error('enough')),
      }
      await expect(there.disks.pull(id, source, options)).rejects.toThrow('enough')
      expect(await there.disks.find(id)).toBeNull()
      expect(await kernelTraces(there.settings.folder)).toEqual([])
    })
  })
})
