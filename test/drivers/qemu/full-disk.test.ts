import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import type { MachineDisk, MachineEngine, MachineSpec } from '../../../drivers/machines.ts'
import { newId } from '../../../lib/ids.ts'
import { diskHost, removeHosts } from '../../support/disk-hosts.ts'
import { testDrawn } from '../../support/drawn.ts'
import { eventually } from '../../support/eventually.ts'
import {
  clockOff,
  inMachine,
  linesOf,
  machines,
  machineSpec,
  script,
  settings,
  start,
  withMachines,
  withOtherHost,
} from '../../support/machine-hosts.ts'
import { makeSmallDisk, type SmallDisk } from '../../support/small-disk.ts'

// What a machine writes while the disk of its host is full.

let folder: string
let small: SmallDisk
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'f-')) // short: sockets are made below it
  small = await makeSmallDisk(folder, 2 * 1024 ** 3)
})

/** Starts a machine with a disk that is on the small file system. */
async function withDisk(of: MachineSpec = machineSpec()): Promise<{ spec: MachineSpec; disk: MachineDisk }> {
  const host = await diskHost(settings.plugs, small.path)
  const disk_id = newId()
  await host.disks.create({ id: disk_id, size_gib: 1 })
  const disk = { disk_id, mount_path: '/data', read_only: false, ...(await host.disks.plug(disk_id, of.id)) }
  const spec = { ...of, disks: [disk] }
  await start(spec)
  return { spec, disk }
}

/** Writes to this folder, beyond the page cache, and reads it again from the disk. Prints both checksums. */
const write = (where: string): string =>
  `head -c 8000000 /dev/urandom | tee ${where}/more | sha256sum && sync && echo 3 > /proc/sys/vm/drop_caches && sha256sum < ${where}/more`
const writing = (id: string, where: string, on?: MachineEngine): Promise<string> =>
  inMachine(id, write(where), on)
const isWhole = (sums: string): boolean => {
  const [written, read, ...others] = sums.split('\n')
  return written !== undefined && written === read && others.length === 0
}

/** Errors of disks and file systems that the guest's kernel has noted. */
const errors = (id: string, on?: MachineEngine): Promise<string> =>
  inMachine(id, 'dmesg | grep -iE "i/o error|remount|shut ?down" || true', on)

/** Resolves when it stands still for these disks. It runs, as its host sees it. */
const standsStill = (id: string, disks: string[], on: MachineEngine) =>
  eventually(async () => {
    const found = await on.find(id)
    return found?.state === 'running' && found.full_disks.join() === disks.join()
  })
const goesOn = (id: string, on: MachineEngine) =>
  eventually(async () => (await on.find(id))?.full_disks.length === 0)

withMachines('a machine whose host’s disk is full', () => {
  afterEach(async () => {
    await small.clear()
    for (const { id } of await machines.list()) await machines.remove(id, { discard: true })
    await removeHosts()
    await small.remove()
    await rm(folder, { recursive: true })
  })

  test('stands still, and goes on by itself when there is room, without an error', async () => {
    const { spec, disk } = await withDisk()
    const { id } = spec
    await small.keepFull()
    const written = writing(id, '/data')
    await standsStill(id, [disk.disk_id], machines)
    await small.clear()
    expect(isWhole(await written)).toBe(true)
    await goesOn(id, machines)
    expect(await errors(id)).toBe('')
    // Its clock stood still, too, and is set.
    await eventually(async () => (await clockOff(id)) === 0)
    expect(await machines.find(id)).toMatchObject({ state: 'running', restart_count: 0 })
  })

  testDrawn('goes on when its root disk has room again', async () => {
    await withOtherHost(async (there) => {
      const { id } = await there.run(machineSpec(), {}, newId())
      await small.keepFull()
      // What its host notes of it waits for room, too.
      await inMachine(id, 'killall sleep', there)
      const written = writing(id, '', there)
      await standsStill(id, ['root'], there)
      await small.clear()
      expect(isWhole(await written)).toBe(true)
      await goesOn(id, there)
      expect(await errors(id, there)).toBe('')
      await eventually(async () => (await there.find(id))?.restart_count === 1)
    }, small.path)
  })

  testDrawn('can be suspended and stopped while it stands still', async () => {
    // Its command writes, since the host ends what it runs in a machine for others when that is suspended.
    const { spec, disk } = await withDisk(
      script(`while [ ! -e /go ]; do sleep 0.2; done; ${write('/data')}; exec sleep 600`),
    )
    const { id } = spec
    await small.keepFull()
    await inMachine(id, 'echo > /go')
    await standsStill(id, [disk.disk_id], machines)
    await machines.suspend(id)
    expect(await machines.find(id)).toMatchObject({ state: 'suspended', full_disks: [] })
    await small.clear()
    await machines.resume(spec)
    const sums = await eventually(async () => {
      const lines = await linesOf(id)
      return lines.length >= 2 && lines.map((line) => line.trim())
    })
    expect(isWhole(sums.join('\n'))).toBe(true)
    expect(await errors(id)).toBe('')

    await small.keepFull()
    const ended = writing(id, '/data').catch(() => 'ended')
    await standsStill(id, [disk.disk_id], machines)
    await machines.stop(id, 0)
    expect(await ended).toBe('ended')
    expect(await machines.find(id)).toMatchObject({ state: 'exited', full_disks: [] })
  })
})
