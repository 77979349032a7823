import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { type Json, smallVm } from '../support/client.ts'
import { closeConsoles, openConsole } from '../support/console.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { testLong } from '../support/long-tests.ts'
import { machineTraces } from '../support/machine-traces.ts'
import { get, resolves } from '../support/members.ts'
import { guests, linesOf, outputOf } from '../support/microvms.ts'
import { plantAll } from '../support/planted.ts'
import { layout } from '../support/stack.ts'
import { holdsNothing, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { addressOf, makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// What only VMs have: images, settings, a place in a VPC. The rest is the code of microVMs. An image takes a minute or
// two to build, and a VM without KVM as long until cloud-init is done: one test here has a real one.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 20 })
})
afterAll(closeConsoles)

const path = '/api/v1/vms'
const making = { withinMs: 600_000 }
const key = `ssh-ed25519 ${'A'.repeat(68)} someone@example.com`
const ask = (over: Json, { owner } = tenant) => owner.ask('POST', path, smallVm({ start: false, ...over }))
const output = (id: string, script: string) => outputOf(tenant, id, script, 'vms')

test('the available images are listed', async () => {
  expect(await tenant.owner.get(`${path}/images`)).toEqual({
    items: [{ name: 'debian-12', title: expect.any(String) }],
    total: 1,
  })
})

test.each([
  ['an image that there is not', '/image', { image: 'debian-1' }],
  ['less memory than it starts in', '/memory_mib', { memory_mib: 128 }],
  ['a root disk that the image does not fit in', '/root_disk_gib', { root_disk_gib: 1 }],
  ['a private key', '/ssh_keys/0', { ssh_keys: ['-----BEGIN OPENSSH PRIVATE KEY-----'] }],
  ['a key with options', '/ssh_keys/0', { ssh_keys: [`command="sh" ${key}`] }],
  ['two keys in one', '/ssh_keys/0', { ssh_keys: [`${key}\n${key}`] }],
  ['more user data than cloud-init should have', '/user_data', { user_data: 'ä'.repeat(8193) }],
  ['config vars, which nothing in it would have', '/config_vars', { config_vars: {} }],
])('a VM is refused: %s', async (_, pointer, wrong) => {
  expect(await ask(wrong)).toMatchObject({ status: 422, body: { errors: [{ pointer }] } })
})

describe('a VPC', () => {
  const exceeded = { status: 409, body: { code: 'quota_exceeded', limit: 'max_vms_per_vpc' } }

  test('has at most max_vms_per_vpc VMs, also when created in parallel; deleting one frees the quota', async () => {
    const small = await makeTenant({ max_vms_per_vpc: 2 })
    const vpc_id = (await makeVpc(small)).id
    const nics = [{ subnet_id: (await makeSubnet(small, vpc_id)).id }]
    const answers = await Promise.all(
      [{ vpc_id }, { nics }, { vpc_id, nics }, { vpc_id }, { nics }].map((where) => ask(where, small)),
    )
    const accepted = answers.filter(({ status }) => status === 202)
    expect(accepted.map((answer) => answer.body)).toMatchObject([{ vpc_id }, { vpc_id }])
    for (const refused of answers.filter(({ status }) => status !== 202))
      expect(refused).toMatchObject(exceeded)
    expect((await small.holds()).memory_mib).toBe(1024)

    expect(await ask({ vpc_id: (await makeVpc(small)).id }, small)).toMatchObject({ status: 202 })
    expect(await small.owner.ask('DELETE', `/api/v1/vpcs/${vpc_id}`)).toMatchObject({ status: 409 })
    await (await small.vms.delete(String(accepted[0]?.body['id']))).operation.success()
    expect(await ask({ vpc_id }, small)).toMatchObject({ status: 202 })
  })

  test('counts a VM from its first NIC on, and no VM is in two VPCs', async () => {
    const small = await makeTenant({ max_vms_per_vpc: 1 })
    const [here, there] = [await makeVpc(small), await makeVpc(small)]
    const subnet_id = (await makeSubnet(small, here.id)).id
    const elsewhere = (await makeSubnet(small, there.id)).id
    const [one, other] = [await small.vms.make({ start: false }), await small.vms.make({ start: false })]
    const attach = (id: string, nic: Json) => small.owner.ask('POST', `${path}/${id}/nics`, nic)
    const attached = await small.owner.begin('POST', `${path}/${one.id}/nics`, { subnet_id })
    await attached.operation.success()
    expect(await small.vms.get(one.id)).toMatchObject({ vpc_id: here.id, nics: [{ subnet_id }] })
    expect(await attach(other.id, { subnet_id })).toMatchObject(exceeded)
    expect(await small.vms.get(other.id)).toMatchObject({ vpc_id: null, nics: [], operation_id: null })
    const otherVpc = { status: 409, body: { code: 'other_vpc' } }
    expect(await attach(one.id, { subnet_id: elsewhere })).toMatchObject(otherVpc)
    expect(await ask({ vpc_id: there.id, nics: [{ subnet_id }] }, small)).toMatchObject(otherVpc)
  })
})

testDrawn(
  'a VM boots its image, is set up by secret user data, has a serial console, and is deleted cleanly',
  async () => {
    const secret = `planted-${newId()}`
    plantAll([secret])
    const user_data = `#cloud-config\n# ${secret}\nbootcmd: [[sh, -c, "echo set up > /dev/ttyS0"]]\n`
    const { id, body: asked, operation } = await tenant.vms.create({ user_data, ssh_keys: [key] })
    expect(asked).toMatchObject({ status: 'creating', ssh_keys: [key], vpc_id: null })
    await operation.success(making.withinMs)
    const shown = await tenant.vms.get(id)
    expect(shown).toMatchObject({ status: 'running', image_digest: expect.stringMatching(/^debian-12-/) })
    expect(JSON.stringify([asked, shown, await operation.now()])).not.toContain(secret)
    expect(await guests(id)).toHaveLength(1)
    const record = await readFile(join(layout.state, 'host/machines', id, 'machine.json'), 'utf8')
    expect(record).not.toContain(secret)

    const terminal = await openConsole(id, { token: tenant.owner.token, plural: 'vms' })
    await terminal.shows('set up', making.withinMs)
    expect((await linesOf(tenant, id, 'vms')).map(({ line }) => line).join()).toContain('set up')

    // It is running in each report since: it was not restarted.
    expect(await tenant.owner.get(`${path}/${id}/activity`)).toMatchObject({
      items: [{ kind: 'created' }],
      total: 1,
    })
    await (await tenant.vms.delete(id)).operation.success()
    expect((await terminal.closed).code).toBe(1000)
    expect(await guests(id)).toEqual([])
    expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
    expect(await tenant.holds()).toEqual(holdsNothing)
  },
  900_000,
)

/** Serves `set up` on port 80, and records each run of the user data. */
const user_data = [
  '#cloud-config',
  'write_files: [{ path: /srv/www/index.html, content: set up }]',
  'runcmd:',
  '  - [sh, -c, "echo run >> /root/runs"]',
  '  - [systemd-run, python3, -m, http.server, "80", --directory, /srv/www]',
].join('\n')

testLong(
  'a VM has its subnet, keys and disks, runs its user data once, and survives each pause unchanged',
  async () => {
    const vpc = await makeVpc(tenant)
    const subnet = await makeSubnet(tenant, vpc.id)
    const neighbour = await makeMember(tenant, subnet.id)
    const nics = [{ subnet_id: subnet.id }]
    const { id, operation } = await tenant.vms.create({ user_data, ssh_keys: [key], nics })
    await operation.success(making.withinMs)
    const vm = (await tenant.vms.get(id)) as Member
    const once = () => eventually(async () => (await output(id, 'cat /root/runs')) === 'run', making)

    await once()
    const command = ['sh', '-c', 'echo "$1"; exit 7', 'sh', 'a  b']
    expect(await tenant.owner.ask('POST', `${path}/${id}/exec`, { command })).toMatchObject({
      status: 200,
      body: { output: 'a  b\n', exit_code: 7, truncated: false },
    })
    expect(await output(id, 'cat /home/debian/.ssh/authorized_keys; hostname')).toBe(`${key}\n${vm.name}`)
    expect(await output(id, 'ip -4 -o address show scope global')).toContain(` ${addressOf(vm)}/24 `)
    expect(await output(id, `curl -s http://${neighbour.name}/`)).toBe(neighbour.name)
    expect(await resolves(neighbour, vm.name)).toEqual([addressOf(vm)])
    await eventually(async () => (await get(neighbour, addressOf(vm))) === 'set up', making)

    const { id: disk } = await tenant.disks.make()
    await (await tenant.vms.attach(id, disk)).operation.success(making.withinMs)
    const mount = `mount /dev/disk/by-id/*${disk.slice(0, 20)} /mnt`
    await eventually(() => output(id, `${mount} && echo kept >/mnt/file && umount /mnt && echo done`), making)

    const boot = await output(id, 'cat /proc/sys/kernel/random/boot_id')
    await (await tenant.vms.suspend(id)).operation.success(making.withinMs)
    expect(await tenant.vms.get(id)).toMatchObject({ status: 'suspended' })
    expect(await guests(id)).toEqual([])
    expect(await get(neighbour, addressOf(vm))).toBeNull()
    await (await tenant.vms.resume(id)).operation.success(making.withinMs)
    expect(await output(id, 'cat /proc/sys/kernel/random/boot_id')).toBe(boot)
    await eventually(async () => (await get(neighbour, addressOf(vm))) === 'set up', making)

    await output(id, 'echo kept >/root/file; sync')
    await (await tenant.vms.stop(id, { grace_sec: 120 })).operation.success(making.withinMs)
    await (await tenant.vms.start(id)).operation.success(making.withinMs)
    expect(await eventually(() => output(id, 'cat /root/file'), making)).toBe('kept')
    expect(await output(id, `${mount}; cat /mnt/file; umount /mnt`)).toContain('kept')
    await eventually(
      () => output(id, 'cloud-init status --wait; test -e /run/cloud-init/result.json'),
      making,
    )
    await once()

    await (await tenant.vms.detach(id, disk)).operation.success(making.withinMs)
    const gone = await tenant.owner.begin('DELETE', `${path}/${id}/nics/${vm.nics[0]?.id}`)
    await gone.operation.success(making.withinMs)
    expect(await tenant.vms.get(id)).toMatchObject({ nics: [], disks: [], vpc_id: vpc.id })
    await (await tenant.vms.delete(id)).operation.success(making.withinMs)
    expect(await guests(id)).toEqual([])
    await (await tenant.disks.delete(disk)).operation.success()
    expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
  },
  1_800_000,
)

describeHosts('a VM that moves to another host', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  testLong(
    'keeps its memory, disk, address and name, and restarts on the new host',
    async () => {
      const mover = await makeTenant()
      const subnet_id = (await makeSubnet(mover, (await makeVpc(mover)).id)).id
      await open([second])
      const neighbour = await makeMember(mover, subnet_id)
      await open([first])
      const { id, operation } = await mover.vms.create({ user_data, nics: [{ subnet_id }] })
      await operation.success(making.withinMs)
      const vm = (await mover.vms.get(id)) as Member
      const inside = (script: string) => outputOf(mover, id, script, 'vms')
      const answers = () => eventually(async () => (await get(neighbour, addressOf(vm))) === 'set up', making)
      await answers()
      const boot = await inside('cat /proc/sys/kernel/random/boot_id')
      await inside('echo kept >/root/file; sync')

      await open([second])
      await (await mover.vms.reschedule(id)).operation.success(making.withinMs)
      expect(await mover.vms.get(id)).toMatchObject({ status: 'running', host_id: second.id, nics: vm.nics })
      expect(await inside('cat /proc/sys/kernel/random/boot_id')).toBe(boot)
      await answers()
      expect(await resolves(neighbour, vm.name)).toEqual([addressOf(vm)])
      expect(await guests(id)).toHaveLength(1)

      await (await mover.vms.stop(id, { grace_sec: 120 })).operation.success(making.withinMs)
      await (await mover.vms.start(id)).operation.success(making.withinMs)
      expect(await eventually(() => inside('cat /root/file'), making)).toBe('kept')
      expect(await inside('cat /root/runs')).toBe('run')
      await (await mover.vms.delete(id)).operation.success(making.withinMs)
      await eventually(async () => (await machineTraces(id)).length === 0)
    },
    1_800_000,
  )
})
