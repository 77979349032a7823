import { expect, jest, test } from '@jest/globals'
import { makeHostedDisks } from '../../activities/host/disk-mounts.ts'
import type { Disks, DiskTransfers } from '../../drivers/disks.ts'
import { DiskNotMountable } from '../../drivers/disk-errors.ts'
import type { FoundInstance } from '../../drivers/instances.ts'
import type { WantedDisk } from '../../lib/host-protocol.ts'
import { makeLogger } from '../../lib/log.ts'
import { disksPart } from '../../worker/host/parts/disks.ts'
import { eventually } from '../support/eventually.ts'

const disk: WantedDisk = {
  kind: 'disk',
  id: 'd1',
  instance_id: 'c1',
  mount_path: '/data',
  read_only: false,
  written_by_machine: false,
  moved_by: null,
  state: 'attached',
}

test('a host mounts no disk that a machine wrote, whatever the record says else', async () => {
  let mounts = 0
  const disks = {
    find: async () => null,
    attach: async () => void mounts++,
  } as unknown as Disks & DiskTransfers
  const container = { id: 'c1', kind: 'container', state: 'running', pid: 7 } as unknown as FoundInstance
  const hosted = makeHostedDisks({
    disks,
    engine: { find: async () => container },
    machines: null,
    wantedDisk: async () => ({ ...disk, written_by_machine: true }),
  })
  const mount = { disk_id: 'd1', mount_path: '/data', read_only: false }
  for (const work of [
    () => hosted.mountsFor('c1', [mount], 'op'),
    () => hosted.mountLive('d1', 'c1'),
    () => hosted.putRight('d1', () => {}),
  ])
    await expect(work()).rejects.toThrow(DiskNotMountable)
  expect(mounts).toBe(0)
})

test('a disk that breaks and is repaired between two reports is reported as broken once', async () => {
  let state = 'attached'
  let repairs = 0
  const disks = {
    list: async () => [{ id: disk.id }],
    find: async () => ({ id: disk.id, state }),
    attach: async () => {
      repairs++
      state = 'attached'
    },
  } as unknown as Disks & DiskTransfers
  const instance = { id: 'c1', kind: 'container', state: 'running', pid: 7, engine_id: 'e1' }
  const here = [instance as unknown as FoundInstance]
  const hosted = makeHostedDisks({
    disks,
    engine: { find: async () => here[0] ?? null },
    machines: null,
    // It breaks while the host asks for its record.
    wantedDisk: async () => {
      if (repairs === 0) state = 'broken'
      return disk
    },
  })
  const api = { wantedDisk: async () => disk } as unknown as Parameters<typeof disksPart>[0]['api']
  const engine = { find: async () => here[0] ?? null }
  const log = makeLogger('host', 'fatal')
  const part = disksPart({ disks, hosted, engine, instances: () => here, api, log })
  const reported = async () => (await part.observe?.())?.map((thing) => (thing as { state: string }).state)

  expect(await reported()).toEqual(['attached'])
  part.bringAbout?.([disk])
  await eventually(async () => repairs === 1 && (await reported())?.join() === 'broken')
  part.bringAbout?.([disk])
  expect(await reported()).toEqual(['attached'])
  part.bringAbout?.([disk])
  expect(await reported()).toEqual(['attached'])
})

/** A part with one disk, whose repair ends half-way while there is no room: its daemon runs, and nothing is mounted. */
function partOfOne(kind: FoundInstance['kind'] = 'container') {
  const host = { state: 'attached', hasRoom: true, repairs: 0 }
  const attach = async (): Promise<void> => {
    host.repairs++
    host.state = 'attached'
    if (!host.hasRoom) throw new Error('no space left on device')
  }
  const disks = {
    list: async () => [{ id: disk.id }],
    find: async () => ({ id: disk.id, state: host.state }),
    attach,
    plug: attach,
  } as unknown as Disks & DiskTransfers
  const machines = { attachDisk: async () => {} } as unknown as Parameters<
    typeof makeHostedDisks
  >[0]['machines']
  const full_disks: string[] = []
  const instance = { id: 'c1', kind, state: 'running', pid: 7, engine_id: 'e1', full_disks }
  const here = [instance as unknown as FoundInstance]
  const engine = { find: async () => here[0] ?? null }
  const hosted = makeHostedDisks({ disks, engine, machines, wantedDisk: async () => disk })
  const api = { wantedDisk: async () => disk } as unknown as Parameters<typeof disksPart>[0]['api']
  const log = makeLogger('host', 'fatal')
  const part = disksPart({ disks, hosted, engine, instances: () => here, api, log })
  let now = 10_000
  return {
    host,
    instance,
    /** Looks, reports, and hears what is wanted. Returns the reported state, and the number of repairs after it. */
    report: async (): Promise<[string, number]> => {
      // The part looks at its disks every five seconds at most.
      const clock = jest.spyOn(Date, 'now').mockReturnValue((now += 10_000))
      const seen = ((await part.observe?.()) ?? []).map((thing) => (thing as { state: string }).state)
      part.bringAbout?.([disk])
      await new Promise((resolve) => setImmediate(resolve))
      clock.mockRestore()
      return [seen.join(), host.repairs]
    },
  }
}

test('a disk whose writes fail is reported so until a repair has succeeded', async () => {
  const { host, report } = partOfOne()
  expect(await report()).toEqual(['attached', 1]) // mounts it
  Object.assign(host, { hasRoom: false, state: 'failing' })
  expect(await report()).toEqual(['failing', 2])
  expect(await report()).toEqual(['failing', 3])
  host.hasRoom = true
  expect(await report()).toEqual(['failing', 4])
  expect(await report()).toEqual(['attached', 4])
})

test('a machine’s disk whose writes fail is reported so while the machine stands still, and is left to it', async () => {
  const { instance, host, report } = partOfOne('microvm')
  expect(await report()).toEqual(['attached', 1])
  instance.full_disks = ['root']
  expect(await report()).toEqual(['attached', 1])
  instance.full_disks = ['root', disk.id]
  expect(await report()).toEqual(['failing', 1])
  instance.full_disks = []
  expect(await report()).toEqual(['attached', 1])
  host.state = 'broken' // its daemon has ended: to be repaired although it stands still
  instance.full_disks = [disk.id]
  expect(await report()).toEqual(['broken', 2])
})

test('a broken disk is repaired again after a repair that ended half-way', async () => {
  const { host, report } = partOfOne()
  expect(await report()).toEqual(['attached', 1])
  Object.assign(host, { hasRoom: false, state: 'broken' })
  expect(await report()).toEqual(['broken', 2])
  expect(await report()).toEqual(['broken', 3])
  expect(await report()).toEqual(['attached', 4])
  host.hasRoom = true
  expect(await report()).toEqual(['attached', 5])
  expect(await report()).toEqual(['attached', 5])
})
