import { expect, test } from '@jest/globals'
import { makeHostedDisks } from '../../activities/host/disk-mounts.ts'
import type { Disks, DiskTransfers } from '../../drivers/disks.ts'
import { DiskNotMountable } from '../../drivers/errors.ts'
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
