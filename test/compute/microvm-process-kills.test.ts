import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, expect, test } from '@jest/globals'
import { closeConsoles } from '../support/console.ts'
import type { Accepted } from '../support/client.ts'
import { describeHosts, first, hosts, second } from '../support/describe-hosts.ts'
import { tracesOf } from '../support/disk-traces.ts'
import { eventually } from '../support/eventually.ts'
import { expectNoNetworks, networkThings } from '../support/host-networks.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { hasMachineFile, machineFiles, machineTraces } from '../support/machine-traces.ts'
import { counter, countedBy, countsOn, guests, killProcesses, outputOf } from '../support/microvms.ts'
import { randomOf } from '../support/random.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// QEMU itself is killed (-9) at each step of an operation. In the end there is one microVM as recorded, with all that
// it had synced; once it is deleted nothing is left.

interface Scene {
  tenant: TestTenant
  /** The id of the existing microVM; empty if there is none. */
  id: string
  subnet: string
  disk: string | null
}

interface Story {
  /** The state before the operation. */
  from: 'nothing' | 'running' | 'suspended'
  begin: (scene: Scene) => Promise<Accepted>
  /** The conditions at which QEMU is killed, at most `longestMs` later. */
  moments: Record<string, (id: string) => boolean | Promise<boolean>>
  longestMs: number
  /** Whether it has an attached disk besides its root disk. */
  withDisk: boolean
  /** The allowed final states. A microVM that is killed during its suspension may be started by a repair. */
  ends: ('running' | 'suspended' | 'stopped')[]
}

const isThere = async (id: string): Promise<boolean> => (await guests(id)).length > 0
const isWritten = (id: string): boolean => hasMachineFile(id, 'memory.part') || hasMachineFile(id, 'memory')
const isWhole = (id: string): boolean => hasMachineFile(id, 'memory')

const stories: Record<string, Story> = {
  create: {
    withDisk: false,
    from: 'nothing',
    begin: ({ tenant, subnet }) => tenant.microvms.create({ ...counter, nics: [{ subnet_id: subnet }] }),
    moments: { 'its process is there': isThere },
    longestMs: 5_000,
    ends: ['running'],
  },
  suspend: {
    withDisk: true,
    from: 'running',
    begin: ({ tenant, id }) => tenant.microvms.suspend(id),
    moments: {
      'it is accepted': () => true,
      'its memory is written': isWritten,
      'its memory is whole': isWhole,
    },
    longestMs: 300,
    ends: ['running', 'suspended'],
  },
  resume: {
    withDisk: true,
    from: 'suspended',
    begin: ({ tenant, id }) => tenant.microvms.resume(id),
    moments: { 'its process is there': isThere },
    longestMs: 2_000,
    // Once it has written to its disk, its memory is stale, and its owner has to start it.
    ends: ['running', 'stopped'],
  },
  fork: {
    withDisk: false,
    from: 'suspended',
    begin: ({ tenant, id }) => tenant.microvms.fork(id),
    moments: { 'the other’s process is there': isThere },
    longestMs: 2_000,
    ends: ['running'],
  },
  reboot: {
    withDisk: true,
    from: 'running',
    begin: ({ tenant, id }) => tenant.microvms.reboot(id),
    moments: { 'it is accepted': () => true },
    longestMs: 8_000,
    ends: ['running'],
  },
  reschedule: {
    withDisk: true,
    from: 'running',
    begin: ({ tenant, id }) => tenant.microvms.reschedule(id),
    moments: {
      'its memory is written where it was': isWritten,
      'it is there on its new host': async (id) => machineFiles(id).has(2) && (await isThere(id)),
    },
    longestMs: 1_000,
    ends: ['running', 'stopped', 'suspended'],
  },
}

const cases = Object.entries(stories).flatMap(([verb, story]) =>
  Object.entries(story.moments).flatMap(([when, moment]) =>
    Array.from({ length: 4 }, (_, seed) => ({ verb, when, seed, story, moment })),
  ),
)

describeHosts('a microVM', () => {
  afterAll(async () => {
    closeConsoles()
    await removeTenants()
    await closeFurther()
  })

  test.each(sampled(cases, 2))(
    'ends as recorded when its process is killed in the middle of a $verb, when $when, seed $seed',
    async ({ verb, seed, story, moment }) => {
      const scene = await begins(story)
      const { tenant, disk } = scene
      if (verb === 'reschedule') await open([second])
      const accepted = await story.begin(scene)
      const id = accepted.id
      await eventually(() => moment(id))
      await delay(randomOf(seed)() * story.longestMs)
      await killProcesses(id)
      await accepted.operation.end()
      const status = await settles(tenant, id)
      expect(story.ends).toContain(status)
      const all = [...new Set([scene.id, id])].filter(Boolean)
      for (const one of all) await expectSound(tenant, one)
      await expectNothingLost(tenant, id, status)

      for (const one of all) await (await tenant.microvms.delete(one)).operation.success()
      if (disk) await (await tenant.disks.delete(disk)).operation.success()
      for (const one of all) await eventually(async () => (await machineTraces(one)).length === 0)
      if (disk) await eventually(async () => (await tracesOf(disk)).length === 0)
      for (const host of hosts) await eventually(() => expectNoNetworks(host, tenant.id))
    },
  )
})

async function begins({ from, withDisk }: Story): Promise<Scene> {
  await open([first])
  const tenant = await makeTenant()
  const subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  if (from === 'nothing') return { tenant, subnet, id: '', disk: null }
  const disk = withDisk ? (await tenant.disks.make()).id : null
  const disks = disk ? [{ disk_id: disk, mount_path: '/data' }] : []
  const { id } = await tenant.microvms.make({ ...counter, nics: [{ subnet_id: subnet }], disks })
  await countsOn(tenant, id)
  if (from === 'suspended') await (await tenant.microvms.suspend(id)).operation.success()
  return { tenant, subnet, id, disk }
}

/** Resolves with its status when no operation works on it any more and its processes match the record. */
const settles = (tenant: TestTenant, id: string): Promise<string> =>
  eventually(async () => {
    const { status, operation_id } = await tenant.microvms.get(id)
    const there = (await guests(id)).length
    const isSo = status === 'running' ? there === 1 : there === 0 && (status === 'suspended') === isWhole(id)
    return operation_id === null && isSo && status
  })

/** It is on the recorded host only, with exactly what its state requires. */
async function expectSound(tenant: TestTenant, id: string): Promise<void> {
  const { status, host_id, nics } = (await tenant.microvms.get(id)) as Member
  const index = hosts.findIndex((host) => host.id === host_id) + 1
  const files = status === 'suspended' ? ['memory', 'root.qcow2'] : ['root.qcow2']
  await eventually(() => {
    expect([...machineFiles(id).keys()]).toEqual([index])
    const its = machineFiles(id).get(index) ?? []
    expect(its.filter((name) => !['logs', 'machine.json'].includes(name))).toEqual(files)
    return true
  })
  expect(await guests(id)).toHaveLength(status === 'running' ? 1 : 0)
  for (const nic of nics) {
    await eventually(async () => {
      const places = await Promise.all(hosts.map(networkThings))
      return places.flat().filter(({ kind, of }) => kind === 'link' && of.id === nic.id).length === 1
    })
  }
}

/** Each number was on its disk before it was printed; a killed process may lose the output it had just printed. */
async function expectNothingLost(tenant: TestTenant, id: string, status: string): Promise<void> {
  if (status === 'suspended') await (await tenant.microvms.resume(id)).operation.success()
  if (status === 'stopped') await (await tenant.microvms.start(id)).operation.success()
  await countsOn(tenant, id)
  const numbers = await countedBy(tenant, id)
  expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b))
  expect(Number(await outputOf(tenant, id, 'cat /count'))).toBeGreaterThanOrEqual(numbers.at(-1) ?? 0)
}
