import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { hasStopped } from '../../../drivers/qcow2/failures.ts'
import { newId } from '../../../lib/ids.ts'
import { asRoot } from '../../support/as-root.ts'
import { removeTestContainers } from '../../support/containers.ts'
import { type DiskHost, diskHost, inContainer, pidOf, removeHosts } from '../../support/disk-hosts.ts'
import { running } from '../../support/disk-tests.ts'
import { eventually } from '../../support/eventually.ts'
import { makeSmallDisk, type SmallDisk } from '../../support/small-disk.ts'

let folder: string
let small: SmallDisk
let host: DiskHost
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'full-'))
  small = await makeSmallDisk(folder, 2 * 1024 ** 3)
  host = await diskHost(join(folder, 'run'), small.path)
})
afterEach(async () => {
  await small.clear()
  await removeTestContainers()
  await removeHosts()
  await small.remove()
  await rm(folder, { recursive: true })
})

const fails = (container: string, script: string): Promise<boolean> =>
  inContainer(container, script).then(
    () => false,
    () => true,
  )
const append = 'dd if=/dev/urandom of=/data/more bs=64k count=16 oflag=append conv=notrunc,fsync'
/** Fills the journal of the file system, which then stops. */
const makeFiles =
  'i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); echo > /data/$$-$i || exit 1; done; sync -f /data/file'

asRoot('on a full disk of its host', () => {
  test.each([
    { words: 'a disk whose writes fail', write: append, stops: false },
    { words: 'a disk whose file system has stopped', write: makeFiles, stops: true },
  ])(
    '$words says so, and works again when there is room, with all that was synced',
    async ({ write, stops }) => {
      const id = newId()
      await host.disks.create({ id, size_gib: 1 })
      const container = await running()
      const to = { pid: await pidOf(container), mount_path: '/data' }
      const { host_path } = await host.disks.attach(id, to)
      await inContainer(container, 'echo kept > /data/file; sync')
      expect(await host.disks.find(id)).toMatchObject({ state: 'attached' })

      await small.keepFull()
      await eventually(async () => (await fails(container, write)) && (await hasStopped(host_path)) === stops)
      await eventually(async () => (await host.disks.find(id))?.state === 'failing')

      await small.clear()
      await eventually(async () => {
        await host.disks.attach(id, to)
        return (await host.disks.find(id))?.state === 'attached'
      })
      expect(await inContainer(container, 'cat /data/file')).toBe('kept')
      await inContainer(container, append)
      expect(await host.disks.find(id)).toMatchObject({ state: 'attached' })
    },
  )
})
