import { afterEach, expect, test } from '@jest/globals'
import { HostReport, type ThingOnHost } from '../../lib/host-protocol.ts'
import { Container } from '../../models/compute/containers.ts'
import { Host } from '../../models/compute/hosts.ts'
import { observe } from '../../models/compute/observe.ts'
import { repairsAtOnce } from '../../models/compute/repairs.ts'
import { Operation } from '../../models/operations.ts'
import { eventually } from '../support/eventually.ts'
import type { Json } from '../support/client.ts'
import { platform, startAll } from '../support/platform.ts'
import { makeTenant } from '../support/tenants.ts'

// Reports about some instances. They leave out all else on the host, of which the platform then begins repairs.

afterEach(startAll)

/** A running instance, and a way to report its host's things. */
async function reported(plural: 'containers' | 'microvms' = 'containers') {
  const tenant = await makeTenant()
  const instances = tenant[plural]
  const { id, host_id } = await instances.make()
  await settled(() => instances.get(id))
  const report = await reportsOf(host_id)
  return { id, report, get: () => instances.get(id), activity: () => instances.activity(id) }
}

/** Resolves when a report is compared with the record: one that has just changed is left to the next report. */
const settled = (get: () => Promise<Json>) =>
  eventually(async () => Date.now() - Date.parse(String((await get())['updated_at'])) > 2_500)

async function reportsOf(hostId: string | null) {
  const host = await Host.findById(hostId).orFail().lean()
  return (things: ThingOnHost[], age_ms: number) =>
    observe(
      host._id,
      HostReport.parse({
        data_plane_url: host.data_plane_url,
        data_plane_certificate: host.data_plane_certificate,
        address: host.address,
        capacity: host.capacity,
        engine: host.engine,
        machines: host.machines,
        kinds: host.kinds,
        underlay_address: host.underlay_address,
        tunnel_key: host.tunnel_key,
        published_ports: host.published_ports,
        things,
        unseen: [],
        age_ms,
      }),
    )
}

test('a report that began before its container was created does not end the container', async () => {
  const { report, activity } = await reported()
  await report([], 60_000)
  expect(await activity()).toMatchObject([{ kind: 'created' }])
  await report([], 0)
  const [, repair] = await activity()
  expect(repair).toMatchObject({ kind: 'repair', message: expect.stringMatching(/was missing/) })
})

test('the feed says that a container was started again with its engine', async () => {
  const { id, report, activity } = await reported()
  const runsSince = (started_at: Date) => {
    const seen = {
      state: 'running',
      exit_code: null,
      oom_killed: false,
      restart_count: 0,
      crash_looping: false,
    }
    const more = { health: 'none', ended_by: null, started_at: started_at.toISOString() }
    return report([{ id, kind: 'container', ...seen, ...more }], 0)
  }
  await runsSince(new Date())
  expect(await activity()).toMatchObject([
    { kind: 'created' },
    { kind: 'restarted', message: expect.stringMatching(/started again with its engine/) },
  ])
})

test('a microVM that is paused, because its host’s disk is full, says so until it runs again', async () => {
  const { id, report, get, activity } = await reported('microvms')
  const { started_at } = await get()
  const seen = {
    state: 'running',
    exit_code: null,
    oom_killed: false,
    restart_count: 0,
    crash_looping: false,
  }
  const more = { health: 'none', ended_by: null, started_at, waits_for_room: true }
  await report([{ id, kind: 'microvm', ...seen, ...more }], 0)
  expect(await get()).toMatchObject({
    status: 'running',
    status_reason: expect.stringMatching(/^waits_for_room: /),
  })
  // Its host says otherwise.
  await eventually(async () => (await get())['status_reason'] === null)
  expect(await activity()).toMatchObject([
    { kind: 'created' },
    { kind: 'waits_for_room', message: 'The microVM is paused: its host’s disk is full' },
    { kind: 'went_on', message: 'The microVM runs again: its host has room' },
  ])
})

test('a container whose writes outside its disks fail says so until it has room, unless it ends again and again', async () => {
  const { id, report, get, activity } = await reported()
  const { started_at } = await get()
  const seen = { state: 'running', exit_code: null, oom_killed: false, restart_count: 0 }
  const more = { layer_full: true, health: 'none', ended_by: null, started_at }
  const told = (crash_looping: boolean) =>
    report([{ id, kind: 'container', ...seen, ...more, crash_looping }], 0)
  for (const [looping, reason] of [
    [true, /^crash_looping: /],
    [false, /^disk_full: /],
  ] as const) {
    await told(looping)
    expect(await get()).toMatchObject({ status: 'running', status_reason: expect.stringMatching(reason) })
    // Its host says otherwise.
    await eventually(async () => (await get())['status_reason'] === null)
    await settled(get)
  }
  expect(await activity()).toMatchObject([
    { kind: 'created' },
    {
      kind: 'disk_full',
      message: 'Writes of the container outside its disks fail: it has used up its disk_gib',
    },
    { kind: 'went_on', message: 'The container has room again for what it writes outside its disks' },
  ])
})

const openRepairs = (tenant_id: string) => Operation.countDocuments({ tenant_id, verb: 'repair', open: true })

test('a tenant whose containers end again and again has four repaired at a time, and holds up nobody else’s', async () => {
  const [looper, other] = [await makeTenant(), await makeTenant()]
  const loops = await Promise.all(Array.from({ length: 6 }, () => looper.containers.make()))
  const { id, host_id } = await other.containers.make()
  const report = await reportsOf(host_id)
  for (const one of loops) await settled(() => looper.containers.get(one.id))
  await settled(() => other.containers.get(id))
  // Each has ended as often as is repaired at once, and its pause is over.
  const repairs = { count: repairsAtOnce, last_at: new Date(Date.now() - 60_000) }
  const ids = [...loops.map((one) => one.id), id]
  for (const tenant_id of [looper.id, other.id])
    await Container.updateMany({ tenant_id, _id: { $in: ids } }, { $set: { repairs } }, { timestamps: false })

  await platform.stop('worker') // so that no repair ends
  const seen = { exit_code: 5, oom_killed: false, restart_count: 0, crash_looping: false }
  const more = { health: 'none', ended_by: null, started_at: null }
  const ended = (one: string) => ({ id: one, kind: 'container', state: 'exited', ...seen, ...more })
  await report(ids.map(ended), 0)
  expect([await openRepairs(looper.id), await openRepairs(other.id)]).toEqual([4, 1])
  await platform.start('worker')
  await eventually(async () => (await openRepairs(looper.id)) === 0)
})
