import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { ContainerBody, Json } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, hosts } from '../support/describe-hosts.ts'
import { closeFurther, open, placesOf, type TestHost } from '../support/hosts.ts'
import { runInside } from '../support/inside.ts'
import { get, resolves } from '../support/members.ts'
import { platform } from '../support/platform.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'

// One tenant's resources from end to end on three hosts. Each test continues from the one before it.

interface Made extends ContainerBody {
  nics: { id: string; subnet_id: string; ip_address: string }[]
  disks: { disk_id: string; mount_path: string }[]
}

describeHosts('on three hosts', () => {
  let tenant: TestTenant
  const subnets: string[] = []
  const names = ['web-1', 'web-2', 'db-1', 'db-2', 'jobs']
  const made = new Map<string, Made>()
  const disks: string[] = []
  let sum = ''

  const host = (of: Made): TestHost => {
    const found = hosts.find(({ id }) => id === of.host_id)
    if (!found) throw new Error(`${of.name} is on no host`)
    return found
  }
  const container = (name: string): Made => {
    const found = made.get(name)
    if (!found) throw new Error(`no ${name}`)
    return found
  }
  const refresh = async (name: string): Promise<Made> => {
    const now = (await tenant.containers.get(container(name).id)) as Made
    made.set(name, now)
    return now
  }

  const inside = (name: string, script: string): Promise<string> =>
    runInside(host(container(name)).engine, `keelson-${container(name).id}`, script)

  const finish = async (method: string, path: string, body?: Json): Promise<Json> => {
    const accepted = await tenant.owner.begin(method, path, body)
    await accepted.operation.success()
    return accepted.body
  }

  /** Requests the page from inside the container, by its own resolver and network. */
  async function ask(from: string, name: string): Promise<string | null> {
    const [address = ''] = await resolves(container(from), name)
    return get(container(from), address)
  }

  /**
   * Each reaches each by name. A busy host may learn of a change with its next report; a wrong answer is never allowed.
   */
  async function expectAllReached(): Promise<void> {
    for (const from of names)
      for (const to of names) {
        const said = [from, to, await eventually(() => ask(from, to))]
        expect(said).toEqual([from, to, to])
      }
  }

  beforeAll(async () => {
    tenant = await makeTenant()
    await open(hosts)
  })
  afterAll(closeFurther)

  test('a VPC has two subnets, one with a DHCP config', async () => {
    const vpc = await tenant.owner.ask('POST', '/api/v1/vpcs', { name: 'shop', cidr: '10.20.0.0/16' })
    expect(vpc.status).toBe(201)
    for (const [name, cidr] of [
      ['front', '10.20.1.0/24'],
      ['back', '10.20.2.0/24'],
    ]) {
      const subnet = await tenant.owner.ask('POST', '/api/v1/subnets', { name, cidr, vpc_id: vpc.body['id'] })
      subnets.push(String(subnet.body['id']))
    }
    const config = { range_start: '10.20.2.100', range_end: '10.20.2.120', domain_name: 'shop.example' }
    const answer = await tenant.owner.ask('POST', `/api/v1/subnets/${subnets[1]}/dhcp-config`, config)
    expect([200, 201, 202]).toContain(answer.status)
  })

  test('five containers find and reach each other by name, across subnets and hosts', async () => {
    const accepted = await Promise.all(
      names.map((name, i) =>
        tenant.containers.create({
          name,
          memory_mib: 128, // writes to its disk use memory first
          tags: { part: 'shop' }, // equal tags spread over hosts
          command: [
            'sh',
            '-c',
            `mkdir /www && echo ${name} > /www/index.html && exec httpd -f -p 80 -h /www`,
          ],
          config_vars: { COLOUR: `blue-${i}` },
          nics: [{ subnet_id: subnets[name.startsWith('db') ? 1 : 0] }],
        }),
      ),
    )
    for (const { operation } of accepted) await operation.success()
    for (const { id } of accepted) {
      const now = (await tenant.containers.get(id)) as Made
      made.set(now.name, now)
    }
    expect(new Set([...made.values()].map(({ host_id }) => host_id)).size).toBe(3)
    await expectAllReached()
  })

  test('the containers of a lost host are moved, keep their addresses, and never run twice', async () => {
    const lost = hosts.find(({ id }) => [...made.values()].some(({ host_id }) => host_id === id))
    const moving = [...made.values()].filter(({ host_id }) => host_id === lost?.id)
    if (!lost) throw new Error('all are nowhere')
    await platform.kill(lost.roles.host)
    const operator = await makeOperator()
    await eventually(
      async () => (await operator.get(`/api/v1/platform/hosts/${lost.id}`))['status'] === 'unreachable',
    )
    const evacuation = await operator.begin('POST', `/api/v1/platform/hosts/${lost.id}/evacuate`)
    await evacuation.operation.success()
    for (const { name, nics } of moving) {
      const now = await refresh(name)
      expect(now).toMatchObject({ status: 'running', nics })
      expect(now.host_id).not.toBe(lost.id)
    }
    // The lost host's engine keeps running, but requests reach the new container.
    await expectAllReached()
    await platform.start(lost.roles.host)
    for (const { id, host_id } of moving.map(({ name }) => container(name)))
      await eventually(async () => {
        const places = await placesOf(id)
        return places.length > 0 && places.every((place) => place.host === host_id)
      })
    await expectAllReached()
  })

  test('a disk is restored from a snapshot, and its data is read on another host', async () => {
    const writer = container('db-1')
    const reader = [...made.values()].find(({ host_id }) => host_id !== writer.host_id)
    if (!reader) throw new Error('all on one host')
    disks.push(String((await finish('POST', '/api/v1/disks', { name: 'data', size_gib: 1 }))['id']))
    const [disk] = disks
    await toHost(disk ?? '', writer)
    await finish('POST', `/api/v1/containers/${writer.id}/disks`, { disk_id: disk, mount_path: '/data' })
    await inside('db-1', 'dd if=/dev/urandom of=/data/noise bs=1M count=20 && sync')
    sum = await inside('db-1', 'sha256sum < /data/noise')
    await finish('POST', `/api/v1/disks/${disk}/snapshots`, { name: 'before' })
    await inside('db-1', 'dd if=/dev/urandom of=/data/noise bs=1M count=20 && sync')
    const restored = await tenant.owner.ask('POST', `/api/v1/disks/${disk}/snapshots/before/restore`)
    expect(restored.status).toBe(202)
    const copy = String(restored.body['new_disk_uuid'])
    await eventually(async () => (await tenant.owner.get(`/api/v1/disks/${copy}`))['status'] === 'available')
    disks.push(copy)
    await toHost(copy, reader)
    await finish('POST', `/api/v1/containers/${reader.id}/disks`, { disk_id: copy, mount_path: '/copy' })
    expect(await inside(reader.name, 'sha256sum < /copy/noise')).toBe(sum)
    expect(await inside('db-1', 'sha256sum < /data/noise')).not.toBe(sum)
    await refresh(reader.name)
  })

  async function toHost(disk: string, of: Made): Promise<void> {
    const { host_id } = await tenant.owner.get(`/api/v1/disks/${disk}`)
    if (host_id === of.host_id) return
    await (await tenant.disks.migrate(disk, String(of.host_id))).operation.success()
  }

  test('a reschedule keeps name, address, disk and config', async () => {
    const before = await refresh('db-1')
    const kept = await inside('db-1', 'sha256sum < /data/noise')
    await finish('POST', `/api/v1/containers/${before.id}/reschedule`, { grace_sec: 0 })
    const after = await refresh('db-1')
    expect(after.host_id).not.toBe(before.host_id)
    expect(after).toMatchObject({
      name: before.name,
      nics: before.nics,
      disks: before.disks,
      status: 'running',
    })
    expect(await inside('db-1', 'sha256sum < /data/noise')).toBe(kept)
    expect(await inside('db-1', 'echo $COLOUR')).toBe('blue-2')
    await expectAllReached()
  })
})
