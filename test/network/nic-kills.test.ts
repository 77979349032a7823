import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type { Accepted } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { expectNoNetworks, networkThings } from '../support/host-networks.ts'
import { describeHosts } from '../support/describe-hosts.ts'
import { allHosts, closeFurther, open, type TestHost } from '../support/hosts.ts'
import { get, inside, reaches } from '../support/members.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { beginMember, makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// If a process is killed (-9) while a NIC is attached, the NIC ends as requested or as before, and leaves no traces. The
// tests look at the machine and the container, not only at the records.

// Skipped where the machine cannot make network namespaces, and so has no further hosts.

let hosts: TestHost[]
let tenant: TestTenant
let subnet: string
let neighbour: Member
beforeAll(async () => {
  if (facts().hosts === 1) return
  hosts = await allHosts()
  tenant = await makeTenant()
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  await open(hosts.slice(0, 1))
  neighbour = await makeMember(tenant, subnet)
})
const roles = ['worker', 'host', 'api', 'temporal', 'mongodb'] as const
const now = async (id: string) => (await tenant.containers.get(id)) as Member
const linkOf = async (nicId: string) =>
  (await networkThings(hosts[0] as TestHost)).find(({ kind, of }) => kind === 'link' && of.id === nicId)

/** Waits until the operation runs. */
const taken = ({ operation }: Accepted) => eventually(async () => (await operation.now()).state === 'running')

async function expectAttached(id: string, count = 1): Promise<void> {
  const member = await now(id)
  expect(member).toMatchObject({ status: 'running', operation_id: null })
  expect(member.nics).toHaveLength(count)
  for (const { id: nic, ip_address } of member.nics) {
    expect(await linkOf(nic)).toBeDefined()
    await eventually(async () => (await get(neighbour, ip_address)) === member.name)
  }
  const addresses = [...(await inside(member, ['ip', 'address'])).matchAll(/inet (10\.0\.0\.\d+)\//g)]
  expect(new Set(addresses.map(([, address]) => address))).toEqual(
    new Set(member.nics.map(({ ip_address }) => ip_address)),
  )
}

describeHosts('NICs under kills:', () => {
  afterAll(async () => {
    await removeTenants()
    for (const host of hosts) await eventually(() => expectNoNetworks(host, tenant.id))
    await closeFurther()
  })

  describe('a create with a NIC', () => {
    const moments = ['accepted', 'its namespace is made', 'it is started'] as const
    const points = moments.flatMap((when) => roles.map((role) => ({ when, role })))
    test.each(sampled(points, 2))('completes if $role is killed when $when', async ({ when, role }) => {
      const seen = await engine.watch(tenant.id)
      const accepted = await beginMember(tenant, subnet)
      if (when === 'accepted') await taken(accepted)
      else if (when === 'its namespace is made') await seen.next('create')
      else await seen.next('start')
      await platform.kill(role)
      await platform.start(role)
      expect(await accepted.operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await expectAttached(accepted.id)
      const made = await engine.withLabel('keelson.resource', accepted.id)
      expect(made).toHaveLength(2)
      expect(new Set(made.map(({ Labels }) => Labels['keelson.kind']))).toEqual(
        new Set(['container', 'pause']),
      )
      await (await tenant.containers.delete(accepted.id)).operation.success()
      expect(await engine.withLabel('keelson.resource', accepted.id)).toEqual([])
    })

    test('that fails leaves neither a namespace nor a NIC on its host', async () => {
      const { id, operation } = await beginMember(tenant, subnet, { command: ['false'] })
      expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'exited_at_once' } })
      expect(await engine.withLabel('keelson.resource', id)).toEqual([])
      const [nic] = (await now(id)).nics
      await eventually(async () => (await linkOf(nic?.id ?? '')) === undefined)
    })
  })

  describe('attach and detach', () => {
    test.each(sampled(roles, 1))('complete although %s is killed in the middle of either', async (role) => {
      const { id } = await makeMember(tenant, subnet, { nics: [] })
      const attaching = await tenant.owner.begin('POST', `/api/v1/containers/${id}/nics`, {
        subnet_id: subnet,
      })
      await taken(attaching)
      await platform.kill(role)
      await platform.start(role)
      expect(await attaching.operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await expectAttached(id)

      const [nic] = (await now(id)).nics
      const detaching = await tenant.owner.begin('DELETE', `/api/v1/containers/${id}/nics/${nic?.id}`)
      await taken(detaching)
      await platform.kill(role)
      await platform.start(role)
      expect(await detaching.operation.end()).toMatchObject({ state: 'succeeded', error: null })
      await expectAttached(id, 0)
      expect(await linkOf(nic?.id ?? '')).toBeUndefined()
      expect(await reaches(neighbour, [nic?.ip_address ?? ''])).toEqual([])
    })

    test('leave no trace if the attachment is cancelled', async () => {
      const { id } = await makeMember(tenant, subnet, { nics: [] })
      await platform.kill('host')
      const { operation } = await tenant.owner.begin('POST', `/api/v1/containers/${id}/nics`, {
        subnet_id: subnet,
      })
      await eventually(async () => (await operation.now()).step !== null)
      await operation.cancel()
      await platform.start('host')
      expect(await operation.end()).toMatchObject({ state: 'cancelled' })
      await expectAttached(id, 0)
      const next = await makeMember(tenant, subnet)
      expect(next.nics).toHaveLength(1)
    })
  })
})
