import { expect } from '@jest/globals'
import type { Accepted } from './client.ts'
import { first, second } from './describe-hosts.ts'
import { diskPlaces, diskUse, pidsServing, unfinishedOf } from './disk-traces.ts'
import { engine } from './engine.ts'
import { eventually } from './eventually.ts'
import { open, placesOf, type TestHost } from './hosts.ts'
import { runInside } from './inside.ts'
import { counter, countedBy, countsOn, guests, inSequence } from './microvms.ts'
import type { TestTenant } from './tenants.ts'

// Operations that a fault interrupts: each takes effect exactly once, or says why not.

/** What an operation is about. */
export interface Scene {
  id: string
  /** A disk with a file, and the file's checksum. */
  disk?: string
  noise?: string
}

export interface Story {
  before: () => Promise<Scene>
  begin: (scene: Scene) => Promise<Accepted>
  /** Resolves in the middle of the operation. */
  middle: (scene: Scene, accepted: Accepted) => Promise<unknown>
  /** Checks what is there against what the operation says. */
  after: (scene: Scene, hasSucceeded: boolean) => Promise<void>
  /** Processes of the instance itself, which may be frozen too. */
  own?: Record<string, (scene: Scene) => Promise<number[]> | number[]>
}

/** For the end of an operation. */

const taken = ({ operation }: Accepted) => eventually(async () => (await operation.now()).state !== 'pending')
const isOver = ({ state }: { state: string }): boolean => state !== 'pending' && state !== 'running'

const hostOf = (id: string | null): TestHost => (id === second.id ? second : first)
const sum = 'sha256sum < /data/file'

/** The record once nothing is open, and its host has been heard again. */
const settled = <T extends { operation_id: string | null; status: string }>(record: T): T | null =>
  record.operation_id === null && record.status !== 'unreachable' ? record : null

const qemu = ({ id }: Scene) => guests(id)
const daemon = ({ disk = '' }: Scene) => pidsServing(disk).map(Number)

/** By verb; `tenant` is the present one. */
export function storiesOf(tenant: () => TestTenant): Record<string, Story> {
  async function inside(container: string, script: string): Promise<string> {
    const { host_id } = await tenant().containers.get(container)
    return runInside(hostOf(host_id).engine, `keelson-${container}`, script)
  }

  /** One container is there, in this state, as recorded. */
  async function expectContainer(id: string, status: 'running' | 'stopped'): Promise<void> {
    expect(await eventually(async () => settled(await tenant().containers.get(id)))).toMatchObject({ status })
    const state = status === 'running' ? 'running' : 'exited'
    await eventually(async () => (await placesOf(id)).map((place) => place.state).join() === state)
  }

  async function withDisk(): Promise<Scene> {
    await open([first])
    const { id: disk } = await tenant().disks.make()
    const { id } = await tenant().containers.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
    const noise = await inside(id, `head -c 30000000 /dev/urandom > /data/file; sync; ${sum}`)
    await open([first, second])
    return { id, disk, noise }
  }

  /** The disk is in one place, complete, and its container reads what was written. */
  async function expectDisk({ id, disk = '', noise = '' }: Scene, host: TestHost): Promise<void> {
    await expectContainer(id, 'running')
    const record = await eventually(async () => settled(await tenant().disks.get(disk)))
    expect(record).toMatchObject({ host_id: host.id, status: 'attached' })
    await eventually(async () => (await diskPlaces(disk)).join() === host.name)
    await eventually(async () => (await diskUse(disk)).daemons === 1)
    expect(unfinishedOf(disk)).toEqual([])
    expect(await inside(id, sum)).toBe(noise)
  }

  /** One guest runs, or none if it is suspended, and it has lost no number. */
  async function expectGuest({ id }: Scene, status: 'running' | 'suspended'): Promise<void> {
    expect(await eventually(async () => settled(await tenant().microvms.get(id)))).toMatchObject({ status })
    await eventually(async () => (await guests(id)).length === (status === 'running' ? 1 : 0))
    if (status === 'suspended') await (await tenant().microvms.resume(id)).operation.success()
    await countsOn(tenant(), id)
    const numbers = await countedBy(tenant(), id)
    expect(numbers).toEqual(inSequence(numbers))
  }

  async function counting(): Promise<Scene> {
    await open([first])
    const { id } = await tenant().microvms.make(counter)
    await countsOn(tenant(), id)
    return { id }
  }

  return {
    create: {
      before: async () => ({ id: '' }),
      async begin(scene) {
        const accepted = await tenant().containers.create()
        scene.id = accepted.id
        return accepted
      },
      middle: ({ id }) => eventually(async () => (await engine.withLabel('keelson.resource', id)).length > 0),
      async after({ id }, hasSucceeded) {
        if (hasSucceeded) return expectContainer(id, 'running')
        await eventually(async () => (await engine.withLabel('keelson.resource', id)).length === 0)
      },
    },
    stop: {
      before: async () => ({ id: (await tenant().containers.make()).id }),
      begin: ({ id }) => tenant().containers.stop(id),
      middle: (_scene, accepted) => taken(accepted),
      after: ({ id }, hasSucceeded) => expectContainer(id, hasSucceeded ? 'stopped' : 'running'),
    },
    suspend: {
      before: counting,
      begin: ({ id }) => tenant().microvms.suspend(id),
      middle: (_scene, accepted) => taken(accepted),
      after: (scene, hasSucceeded) => expectGuest(scene, hasSucceeded ? 'suspended' : 'running'),
      own: { QEMU: qemu },
    },
    resume: {
      async before() {
        const scene = await counting()
        await (await tenant().microvms.suspend(scene.id)).operation.success()
        return scene
      },
      begin: ({ id }) => tenant().microvms.resume(id),
      middle: ({ id }) => eventually(async () => (await guests(id)).length > 0),
      after: (scene, hasSucceeded) => expectGuest(scene, hasSucceeded ? 'running' : 'suspended'),
      own: { QEMU: qemu },
    },
    snapshot: {
      before: withDisk,
      begin: ({ disk = '' }) => tenant().disks.snapshot(disk, 'kept'),
      middle: ({ disk = '' }, accepted) =>
        eventually(async () => unfinishedOf(disk).length > 0 || isOver(await accepted.operation.now())),
      async after(scene, hasSucceeded) {
        const kept = (await tenant().disks.snapshots(scene.disk ?? '')).map(({ name, status }) => ({
          name,
          status,
        }))
        expect(kept).toEqual(hasSucceeded ? [{ name: 'kept', status: 'available' }] : [])
        await expectDisk(scene, first)
      },
      own: { 'the daemon of the disk': daemon },
    },
    move: {
      before: withDisk,
      begin: ({ id }) => tenant().containers.reschedule(id),
      middle: ({ disk = '' }, accepted) =>
        eventually(async () => unfinishedOf(disk).length > 0 || isOver(await accepted.operation.now())),
      after: (scene, hasSucceeded) => expectDisk(scene, hasSucceeded ? second : first),
      own: { 'the daemon of the disk': daemon },
    },
  }
}
