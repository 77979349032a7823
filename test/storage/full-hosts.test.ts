import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { Json } from '../support/client.ts'
import { describeHosts, second } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { runInside } from '../support/inside.ts'
import { linesOf, outputOf } from '../support/microvms.ts'
import { withSmallDisk } from '../support/small-disk-host.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Tests what the API tells tenants while a host's disk is full. The tests in test/drivers check their data.

const gib = 1024 ** 3

/** Writes more than is left, when it is told to, and reads it again from the disk. Prints both checksums. */
const writer = [
  'while [ ! -e /go ]; do sleep 0.2; done',
  'head -c 8000000 /dev/urandom | tee /data/more | sha256sum',
  'sync',
  'echo 3 > /proc/sys/vm/drop_caches',
  'sha256sum < /data/more',
  'exec sleep 3600',
].join('; ')
const append = 'dd if=/dev/urandom of=/data/more bs=64k count=16 oflag=append conv=notrunc,fsync'

const mount = ({ id }: { id: string }) => ({ disks: [{ disk_id: id, mount_path: '/data' }] })

const kinds = (feed: Json[]): unknown[] => feed.map(({ kind }) => kind)
/** How often they are told of depends on the host's looks in between. */
const inOrder = (feed: Json[], first: string, last: string): boolean =>
  kinds(feed).includes(first) && kinds(feed).lastIndexOf(last) > kinds(feed).lastIndexOf(first)

describeHosts('on a host whose disk is full', () => {
  let tenant: TestTenant
  let small: Awaited<ReturnType<typeof withSmallDisk>>
  beforeAll(async () => {
    tenant = await makeTenant()
    small = await withSmallDisk(second, 4 * gib)
    await open([second])
  })
  afterAll(async () => {
    await small.clear()
    await removeTenants()
    await small.end()
    await closeFurther()
  })

  test('a disk and a machine say so, also in their feeds, until there is room', async () => {
    const [mine, machines] = [await tenant.disks.make(), await tenant.disks.make()]
    const { id: container } = await tenant.containers.make(mount(mine))
    const { id: machine } = await tenant.microvms.make({
      command: ['sh', '-c', writer],
      ...mount(machines),
    })
    const inside = (script: string) => runInside(second.engine, `keelson-${container}`, script)
    await inside('echo kept > /data/file; sync')

    await small.keepFull()
    await eventually(() =>
      inside(append).then(
        () => false,
        () => true,
      ),
    )
    await outputOf(tenant, machine, 'echo > /go')
    for (const { id } of [mine, machines])
      expect(
        await eventually(async () => {
          const now = await tenant.disks.get(id)
          return now['condition'] === 'failing' && now
        }),
      ).toMatchObject({
        status: 'attached',
        status_reason: expect.stringMatching(/^Writes to the disk fail/),
      })
    await eventually(async () =>
      String((await tenant.microvms.get(machine))['status_reason']).startsWith('waits_for_room: '),
    )
    expect(await tenant.microvms.get(machine)).toMatchObject({ status: 'running' })
    expect(await tenant.containers.get(container)).toMatchObject({ status: 'running' })

    await small.clear()
    for (const { id } of [mine, machines])
      await eventually(async () => (await tenant.disks.get(id))['condition'] === 'sound')
    await eventually(async () => (await tenant.microvms.get(machine))['status_reason'] === null)
    const sums = await eventually(async () => {
      const lines = (await linesOf(tenant, machine)).filter(({ stream }) => stream === 'stdout')
      return lines.length === 2 && lines.map(({ line }) => line.trim())
    })
    expect(sums[0]).toBe(sums[1])
    await inside(append)
    expect(await inside('cat /data/file')).toBe('kept')

    const [ofContainer, ofMachine] = [
      await tenant.containers.activity(container),
      await tenant.microvms.activity(machine),
    ]
    for (const feed of [ofContainer, ofMachine])
      expect(inOrder(feed, 'disk_failing', 'disk_sound')).toBe(true)
    expect(inOrder(ofMachine, 'waits_for_room', 'went_on')).toBe(true)
    // Nothing was taken for dead.
    expect(kinds([...ofContainer, ...ofMachine])).not.toContain('repair')
    expect(kinds([...ofContainer, ...ofMachine])).not.toContain('restarted')
  })
})
