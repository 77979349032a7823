import { existsSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { linksOf } from '../../drivers/linux/commands.ts'
import { Names } from '../../drivers/linux/names.ts'
import { tunnelPrograms } from '../../drivers/linux/tunnel.ts'
import { Host } from '../../models/compute/hosts.ts'
import { networksOf } from '../../models/network/host-networks.ts'
import { Subnet } from '../../models/network/subnets.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, first, hosts, second, third } from '../support/describe-hosts.ts'
import { closeFurther, open, placesOf, type TestHost } from '../support/hosts.ts'
import { finds, get, inside, reaches, resolves } from '../support/members.ts'
import {
  expectNoNetworks,
  namespaceOf,
  networkThings,
  removeVpcBehindItsBack,
} from '../support/host-networks.ts'
import { platform } from '../support/platform.ts'
import { makeOperator, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { addressOf, makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// NICs and changes of hosts: moves, losses, returns, restarts.

let tenant: TestTenant
let subnet: string
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 100 })
})

const makeOn = async (host: TestHost, over = {}): Promise<Member> => {
  await open([host])
  return makeMember(tenant, subnet, over)
}
const freshSubnet = async (): Promise<void> => {
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
}

describeHosts('a NIC', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
    for (const host of hosts) await eventually(() => expectNoNetworks(host, tenant.id))
  })

  test('moves with its container to another host, and is reached there by address and name', async () => {
    await freshSubnet()
    const member = await makeOn(first)
    const neighbour = await makeOn(second)
    const other = await makeOn(third)
    await finds(neighbour, member, addressOf(member))
    for (const target of [second, third]) {
      await open([target])
      await (await tenant.containers.reschedule(member.id)).operation.success()
      expect(await tenant.containers.get(member.id)).toMatchObject({ host_id: target.id, nics: member.nics })
      for (const from of [neighbour, other]) await finds(from, member, addressOf(member))
    }
    await eventually(async () => (await networkThings(first)).every(({ of }) => of.id !== member.nics[0]?.id))
  })

  testDrawn(
    'is reached from another host by the tunnel between them, also after wireguard-go is killed',
    async () => {
      await freshSubnet()
      const member = await makeOn(first)
      const neighbour = await makeOn(second)
      await finds(neighbour, member, addressOf(member))
      const tunnel = new Names(first.id).tunnel
      const { vpc_id } = await Subnet.findById(subnet).setOptions(everyTenant).orFail().lean()
      const vxlan = [...(await linksOf(new Names(first.id).vpc(vpc_id))).values()].find(
        ({ linkinfo }) => linkinfo?.info_kind === 'vxlan',
      )
      expect(vxlan?.linkinfo?.info_data).toHaveProperty('local6')
      const before = (await linksOf(namespaceOf(first))).get(tunnel)?.ifindex
      // In the kernel, it cannot be killed.
      for (const pid of await tunnelPrograms(new Names(first.id))) process.kill(pid, 'SIGKILL')
      if (before !== undefined && existsSync(`/run/wireguard/${tunnel}.sock`))
        await eventually(async () => {
          const now = (await linksOf(namespaceOf(first))).get(tunnel)?.ifindex
          return now !== undefined && now !== before
        })
      await eventually(async () => (await get(neighbour, addressOf(member))) === member.name)
    },
  )

  test('joins no hosts that are set to different tunnels', async () => {
    await freshSubnet()
    await makeOn(first)
    await makeOn(second)
    const { vpc_id } = await Subnet.findById(subnet).setOptions(everyTenant).orFail().lean()
    const peers = async () => {
      const { subnets, apart } = await networksOf(first.id)
      return [subnets.find(({ id }) => id === subnet)?.peers.length, apart.includes(vpc_id)]
    }
    expect(await peers()).toEqual([1, false])
    // Until the host reports again.
    await Host.updateOne({ _id: second.id }, { tunnel_key: null })
    expect(await peers()).toEqual([0, true])
    await eventually(async () => (await peers())[1] === false)
  })

  testDrawn('that is moved from an unreachable host answers from its new host only', async () => {
    await freshSubnet()
    const member = await makeOn(second)
    const stays = await makeOn(second)
    const neighbour = await makeOn(third)
    const other = await makeOn(first)
    await inside(member, ['sh', '-c', 'echo left behind >/tmp/www/index.html'])
    await platform.kill(second.roles.host) // its containers keep running, and answer
    await eventually(async () => (await tenant.containers.get(member.id)).status === 'unreachable')
    expect(await get(neighbour, addressOf(member))).toBe('left behind')
    await open([first])
    await (await tenant.containers.reschedule(member.id)).operation.success()
    expect((await placesOf(member.id)).filter(({ state }) => state === 'running').length).toBeGreaterThan(1)
    for (const from of [neighbour, other])
      await eventually(async () => (await get(from, addressOf(member))) === member.name)
    expect(await get(neighbour, addressOf(member))).toBe(member.name)
    // The VPC's other members on that host are cut off too, until the host reports again.
    await eventually(async () => (await reaches(neighbour, [addressOf(stays)])).length === 0)

    await platform.start(second.roles.host)
    await eventually(async () => (await placesOf(member.id)).every(({ host }) => host === first.id))
    await eventually(async () => (await get(neighbour, addressOf(stays))) === stays.name)
    // Each host learns of it with its own next report.
    await eventually(async () => (await get(stays, addressOf(member))) === member.name)
  })

  testDrawn('moves when its host is evacuated', async () => {
    await freshSubnet()
    const member = await makeOn(third)
    const neighbour = await makeOn(second)
    await open([second, third])
    const operator = await makeOperator()
    const { operation } = await operator.begin('POST', `/api/v1/platform/hosts/${third.id}/evacuate`)
    await operation.success()
    expect(await tenant.containers.get(member.id)).toMatchObject({ host_id: second.id, nics: member.nics })
    expect(await get(neighbour, addressOf(member))).toBe(member.name)
  })
})

describeHosts('a host', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test.each(['while its program runs', 'while its program is away'])(
    'restores its networks after a kill or a deletion %s',
    async (when) => {
      await freshSubnet()
      const member = await makeOn(second)
      const neighbour = await makeOn(third)
      if (when.endsWith('away')) await platform.kill(second.roles.host)
      await removeVpcBehindItsBack(second, subnet)
      expect(await reaches(neighbour, [addressOf(member)])).toEqual([])
      if (when.endsWith('away')) await platform.start(second.roles.host)
      await eventually(async () => (await reaches(neighbour, [addressOf(member)])).length === 1)
      await eventually(async () => (await resolves(member, neighbour.name))[0] === addressOf(neighbour))
      expect(await get(member, addressOf(neighbour))).toBe(neighbour.name)
      const activity = async () => (await tenant.containers.activity(member.id)).map(({ kind }) => kind)
      await eventually(async () => (await activity()).includes('network_restored'))
      // Other reports tell of it, too.
      const { last_report_at } = await Host.findById(second.id).orFail().lean()
      await eventually(
        async () => Number((await Host.findById(second.id).lean())?.last_report_at) > Number(last_report_at),
      )
      expect((await activity()).filter((kind) => kind === 'network_restored')).toHaveLength(1)
    },
  )

  test('that missed a change gets it with its next report', async () => {
    await freshSubnet()
    const member = await makeOn(second)
    await platform.kill(second.roles.host)
    const late = await makeOn(third)
    await platform.start(second.roles.host)
    await eventually(async () => (await resolves(member, late.name))[0] === addressOf(late))
    expect(await get(member, addressOf(late))).toBe(late.name)
    expect(await get(late, addressOf(member))).toBe(member.name)
  })
})
