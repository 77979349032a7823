import { mkdir, readdir, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { openQemuMachines } from '../../../drivers/qemu/engine.ts'
import { isLong } from '../../support/long.ts'
import { machines, machineSpec, settings, start, withMachines } from '../../support/machine-hosts.ts'

const hourMs = 3_600_000
const weekMs = 168 * hourMs
const imagesFolder = () => join(settings.folder, 'images')
const inFolder = async () => (await readdir(imagesFolder())).toSorted()

/** Sets the last use to long ago. */
async function age(): Promise<void> {
  const before = new Date(Date.now() - 2 * hourMs)
  for (const name of await inFolder()) await utimes(join(imagesFolder(), name, 'image.json'), before, before)
}

withMachines('root disks of images', () => {
  test('are made once for parallel requests', async () => {
    const spec = machineSpec()
    await mkdir(imagesFolder(), { recursive: true })
    expect(await inFolder()).toEqual([])
    const asked = await Promise.all(Array.from({ length: 8 }, () => machines.prepare('microvm', spec.image)))
    const [{ image_digest }] = asked as [(typeof asked)[number]]
    for (const one of asked) expect(one).toEqual(asked[0])
    expect((await inFolder()).map((name) => name.replace('-', ':'))).toEqual([image_digest])
    expect((await readdir(join(imagesFolder(), ...(await inFolder())))).toSorted()).toEqual([
      'image.json',
      'root.qcow2',
    ])
  })

  test('are removed when no machine uses them and they were not requested for long, as are unfinished ones', async () => {
    const spec = machineSpec()
    await start(spec)
    const [name = ''] = await inFolder()
    await age()
    await machines.suspend(spec.id)
    expect(await machines.removeUnusedImages(hourMs)).toEqual([])
    await machines.remove(spec.id, { discard: true })
    await machines.prepare('microvm', spec.image)
    expect(await machines.removeUnusedImages(hourMs)).toEqual([])
    await age()
    await mkdir(join(imagesFolder(), '.unfinished-removal'))
    expect(await machines.removeUnusedImages(hourMs)).toEqual([name])
    expect(await inFolder()).toEqual([])
  })

  test('leave room on the disk: unused ones are removed after an hour, and no others are made', async () => {
    const { image } = machineSpec()
    const crowded = await openQemuMachines({ ...settings, imagesLeaveBytes: 2 ** 60 })
    try {
      await machines.prepare('microvm', image)
      const [name = ''] = await inFolder()
      expect(await crowded.removeUnusedImages(weekMs)).toEqual([])
      await age()
      expect(await machines.removeUnusedImages(weekMs)).toEqual([])
      expect(await crowded.removeUnusedImages(weekMs)).toEqual([name])
      await expect(crowded.prepare('microvm', image)).rejects.toMatchObject({ code: 'host_disk_full' })
      expect(await inFolder()).toEqual([])
    } finally {
      await crowded.close()
    }
  })

  test('are available if they are requested during their removal', async () => {
    const spec = machineSpec()
    for (let round = 0; round < (isLong ? 20 : 2); round++) {
      await machines.prepare('microvm', spec.image)
      await age()
      const [{ image_digest }] = await Promise.all([
        machines.prepare('microvm', spec.image),
        machines.removeUnusedImages(hourMs),
      ])
      expect(await machines.removeUnusedImages(hourMs)).toEqual([])
      expect((await inFolder()).map((name) => name.replace('-', ':'))).toEqual([image_digest])
    }
    await age()
    const [found] = await Promise.all([start(spec), machines.removeUnusedImages(hourMs)])
    expect(found).toMatchObject({ state: 'running' })
    await machines.stop(spec.id, 0)
    expect(await start(spec)).toMatchObject({ state: 'running' })
  })
})
