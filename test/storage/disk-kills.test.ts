import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { Operation } from '../support/client.ts'
import { diskPlaces, diskUse, pidsServing, unfinishedOf } from '../support/disk-traces.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { closeFurther, open, placesOf, type TestHost } from '../support/hosts.ts'
import { runInside } from '../support/inside.ts'
import { platform, type RoleName } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// kill -9 in the middle of disk operations: in the end the result is as before or as requested. There is one complete
// copy of each disk with all that was synced, and no orphaned process, mount, loop device or file.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

interface Scene {
  disk: string
  container: string
  /** The checksum of the file on the disk. */
  noise: string
}

const inside = async (id: string, script: string): Promise<string> => {
  const { host_id } = await tenant.containers.get(id)
  const { engine } = host_id === second.id ? second : first
  return runInside(engine, `keelson-${id}`, script)
}
const sum = 'sha256sum < /data/file'

/** A disk on the first host with 30 MB of random bytes, in a running container. */
async function scene(): Promise<Scene> {
  await open([first])
  const { id: disk } = await tenant.disks.make()
  const { id: container } = await tenant.containers.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
  const noise = await inside(container, `head -c 30000000 /dev/urandom > /data/file; sync; ${sum}`)
  await open([first, second])
  return { disk, container, noise }
}

async function detached(): Promise<Scene> {
  const made = await scene()
  await (await tenant.containers.detach(made.container, made.disk)).operation.success()
  return made
}

const hostOf = (id: string): TestHost => (id === second.id ? second : first)

/** There is one complete copy, on the recorded host and with the recorded attachment. */
async function expectSound(disk: string): Promise<void> {
  const { host_id, status, attached_to, operation_id } = await tenant.disks.get(disk)
  expect({ status, operation_id }).toEqual({
    status: attached_to ? 'attached' : 'available',
    operation_id: null,
  })
  await eventually(async () => (await diskPlaces(disk)).join() === hostOf(host_id).name)
  const runs = attached_to !== null && (await tenant.containers.get(attached_to.id)).status === 'running'
  const use = runs ? { daemons: 1, loops: 1, others: [] } : { daemons: 0, loops: 0, others: [] }
  await eventually(async () => JSON.stringify(await diskUse(disk)) === JSON.stringify(use))
  expect(unfinishedOf(disk)).toEqual([])
}

/** Checks the disk's content through a new container. */
async function expectNoise(disk: string, noise: string): Promise<void> {
  const { id } = await tenant.containers.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
  expect(await inside(id, sum)).toBe(noise)
  await (await tenant.containers.delete(id)).operation.success()
}

interface Story {
  before: () => Promise<Scene>
  begin: (scene: Scene) => Promise<{ id: string; operation: Operation }>
  /** True while the operation is in the middle of its work on the machine. */
  middle: (scene: Scene, id: string) => boolean
  after: (scene: Scene, succeeded: boolean, id: string) => Promise<void>
}

const stories: Record<string, Story> = {
  attach: {
    before: detached,
    begin: ({ container, disk }) => tenant.containers.attach(container, disk),
    middle: ({ disk }) => pidsServing(disk).length > 0,
    async after({ container, disk, noise }, succeeded) {
      expect((await tenant.disks.get(disk)).attached_to?.id).toBe(succeeded ? container : undefined)
      if (succeeded) expect(await inside(container, sum)).toBe(noise)
      else await expectNoise(disk, noise)
    },
  },
  snapshot: {
    before: scene,
    begin: ({ disk }) => tenant.disks.snapshot(disk, 'kept'),
    middle: ({ disk }) => unfinishedOf(disk).length > 0,
    async after({ container, disk, noise }, succeeded) {
      expect(await inside(container, `touch /data/later; ${sum}`)).toBe(noise)
      const kept = (await tenant.disks.snapshots(disk)).map(({ name, status }) => ({ name, status }))
      expect(kept).toEqual(succeeded ? [{ name: 'kept', status: 'available' }] : [])
      expect(snapshotFiles(disk)).toEqual(succeeded ? ['kept.qcow2'] : [])
    },
  },
  restore: {
    async before() {
      const made = await scene()
      await (await tenant.disks.snapshot(made.disk, 'kept')).operation.success()
      return made
    },
    begin: ({ disk }) => tenant.disks.restore(disk, 'kept'),
    middle: (_, id) => unfinishedOf(id).length > 0,
    async after({ noise }, succeeded, id) {
      if (succeeded) await expectSound(id)
      if (succeeded) await expectNoise(id, noise)
      else expect(await diskPlaces(id)).toEqual([])
    },
  },
  migrate: {
    before: detached,
    begin: ({ disk }) =>
      tenant.disks
        .migrate(disk, second.id, { bandwidth_mib_per_sec: 30 })
        .then((of) => ({ ...of, id: disk })),
    middle: ({ disk }) => unfinishedOf(disk).length > 0,
    async after({ disk, noise }, succeeded) {
      expect((await tenant.disks.get(disk)).host_id).toBe(succeeded ? second.id : first.id)
      await expectNoise(disk, noise)
    },
  },
  reschedule: {
    before: scene,
    begin: ({ container }) => tenant.containers.reschedule(container),
    middle: ({ disk }) => unfinishedOf(disk).length > 0,
    async after({ container, disk, noise }, succeeded) {
      const there = succeeded ? second.id : first.id
      expect(await tenant.containers.get(container)).toMatchObject({ host_id: there, status: 'running' })
      expect((await tenant.disks.get(disk)).host_id).toBe(there)
      expect(await inside(container, sum)).toBe(noise)
      await eventually(async () => (await placesOf(container)).length === 1)
    },
  },
}

function snapshotFiles(disk: string): string[] {
  const folder = join(facts().state, 'host/disks', disk, 'snapshots')
  return existsSync(folder) ? readdirSync(folder) : []
}

async function tell(
  { before, begin, after }: Story,
  roles: RoleName[],
  moment: (scene: Scene, of: { id: string; operation: Operation }) => Promise<unknown>,
): Promise<void> {
  const made = await before()
  const begun = await begin(made)
  await moment(made, begun)
  await Promise.all(roles.map((role) => platform.kill(role)))
  for (const role of roles) await platform.start(role)
  const { state, error } = await begun.operation.end()
  // A failed operation says why, in words for tenants.
  if (state !== 'succeeded') expect({ state, code: error?.code }).not.toMatchObject({ code: 'internal' })
  await expectSound(made.disk)
  await after(made, state === 'succeeded', begun.id)
  await expectSound(made.disk)
  await (await tenant.containers.delete(made.container)).operation.success()
  await removeDisks()
}

const removed: string[] = []

/** Deletes all disks of the tenant: those of many kills would fill the host. */
async function removeDisks(): Promise<void> {
  const { items } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/disks')
  for (const { id } of items) await (await tenant.disks.delete(id)).operation.success()
  removed.push(...items.map(({ id }) => id))
}

const victims: Record<string, RoleName[][]> = {
  attach: [['host'], ['worker']],
  snapshot: [['host'], ['worker']],
  restore: [['host'], ['worker']],
  migrate: [['host'], ['host-2'], ['host', 'host-2'], ['worker']],
  reschedule: [['host'], ['host-2'], ['host', 'host-2'], ['worker']],
}
const points = Object.entries(stories).flatMap(([verb, story]) =>
  (victims[verb] ?? []).map((roles) => ({ verb, story, roles, who: roles.join(' and ') })),
)

describeHosts('with a kill in the middle,', () => {
  test.each(sampled(points, 3))('$verb leaves the disk sound: $who', async ({ story, roles }) => {
    await tell(story, roles, (made, { id, operation }) =>
      eventually(async () => story.middle(made, id) || (await operation.now()).state === 'succeeded'),
    )
  })
})

// Ten moments of each of fourteen kills: the long form takes an hour.
describeHosts('with a kill at any moment,', () => {
  const moments = Array.from({ length: 10 }, (_, i) => i * 150)
  const cases = points.flatMap((point) => moments.map((ms) => ({ ...point, ms })))
  test.each(sampled(cases, 1))('$verb leaves it sound: $who after $ms ms', async ({ story, roles, ms }) => {
    await tell(story, roles, () => delay(ms))
  })
})

describeHosts('in the end', () => {
  afterAll(closeFurther)
  test('no disk leaves anything behind', async () => {
    await removeTenants()
    expect(removed.length).toBeGreaterThan(0)
    for (const id of removed) expect(await diskUse(id)).toEqual({ daemons: 0, loops: 0, others: [] })
    for (const id of removed) await eventually(async () => (await diskPlaces(id)).length === 0)
  })
})
