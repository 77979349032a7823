import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { containerOf, finds, get, inside, leaseOf, reaches, resolves } from '../support/members.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts } from '../support/describe-hosts.ts'
import { allHosts, closeFurther, open, type TestHost } from '../support/hosts.ts'
import { makeOutside, type Outside } from '../support/outside.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { addressOf, makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// Containers in VPCs on three hosts: which members find and reach each other, seen from inside.

let hosts: TestHost[]
let tenant: TestTenant
beforeAll(async () => {
  hosts = await allHosts()
  tenant = await makeTenant({ max_vpcs: 100 })
})

const onHost = async (index: number, make: () => Promise<Member>): Promise<Member> => {
  await open(hosts.slice(index, index + 1))
  return make()
}
const newSubnet = async (over = {}) => (await makeSubnet(tenant, (await makeVpc(tenant)).id, over)).id

const attach = (id: string, body: object) => tenant.owner.begin('POST', `/api/v1/containers/${id}/nics`, body)
const detach = (id: string, nic: string) =>
  tenant.owner.begin('DELETE', `/api/v1/containers/${id}/nics/${nic}`)
const now = async (id: string) => (await tenant.containers.get(id)) as Member

describeHosts('members of a VPC', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('find and reach each other by name and address, on three hosts and in two subnets, but no stranger', async () => {
    const vpc = await makeVpc(tenant)
    const one = await makeSubnet(tenant, vpc.id, { cidr: '10.0.0.0/24' })
    const two = await makeSubnet(tenant, vpc.id, { cidr: '10.0.1.0/24', nat: false })
    const members: Member[] = []
    for (const [i, subnet] of [one, one, two, two, one].entries())
      members.push(await onHost(i % 3, () => makeMember(tenant, subnet.id)))
    const other = await newSubnet()
    const mine = await onHost(1, () => makeMember(tenant, other))
    const stranger = await makeTenant()
    const theirs = await makeSubnet(stranger, (await makeVpc(stranger)).id)
    const twin = await onHost(0, () => makeMember(stranger, theirs.id))
    const [first] = members as [Member]
    for (const outsider of [mine, twin]) expect(addressOf(outsider)).toBe(addressOf(first))

    for (const from of members)
      for (const to of members) {
        await finds(from, to, addressOf(to))
        expect(await resolves(from, `${to.name}.internal`)).toEqual([addressOf(to)])
      }
    const others = members.slice(1).map(addressOf)
    for (const outsider of [mine, twin]) {
      expect(await get(outsider, addressOf(first))).toBe(outsider.name)
      expect(await resolves(outsider, String(members[1]?.name))).toEqual([])
      expect(await reaches(outsider, others)).toEqual([])
    }
  })

  test('reach neither their host nor the network between the hosts', async () => {
    const subnet = await newSubnet()
    const member = await onHost(1, () => makeMember(tenant, subnet))
    const { hostAddresses } = await outsideOf()
    expect(hostAddresses.length).toBeGreaterThan(2)
    expect(await reaches(member, hostAddresses)).toEqual([])
  })

  let outside: Outside | undefined
  const outsideOf = async () => (outside ??= await makeOutside())
  afterAll(() => outside?.remove())

  test('reach the outside only while their subnet has nat', async () => {
    const { address } = await outsideOf()
    const subnet = await newSubnet({ nat: false })
    const member = await onHost(1, () => makeMember(tenant, subnet))
    const path = `/api/v1/subnets/${subnet}`
    expect(await reaches(member, [address])).toEqual([])
    await (await tenant.owner.begin('PUT', path, { nat: true })).operation.success()
    await eventually(async () => (await get(member, address)) === 'outside')
    await (await tenant.owner.begin('PUT', path, { nat: false })).operation.success()
    await eventually(async () => (await reaches(member, [address])).length === 0)
  })

  test('are reached by published ports, and cannot get out by them', async () => {
    const { address } = await outsideOf()
    const subnet = await newSubnet({ nat: false })
    const ports = [{ container_port: 80 }]
    const member = await onHost(1, () => makeMember(tenant, subnet, { ports }))
    const [port] = member.ports
    // Seen from there this machine is outside the engine's network: the answer must find its way back.
    const ask = async () => (await fetch(`http://${port?.host_address}:${port?.host_port}/`)).text()
    expect((await eventually(ask)).trim()).toBe(member.name)
    const { hostAddresses } = await outsideOf()
    expect(await reaches(member, [address, ...hostAddresses])).toEqual([])
    const neighbour = await onHost(2, () => makeMember(tenant, subnet))
    await finds(neighbour, member, addressOf(member))

    await (await tenant.containers.stop(member.id)).operation.success()
    expect(await reaches(neighbour, [addressOf(member)])).toEqual([])
    await (await tenant.containers.start(member.id)).operation.success()
    expect((await tenant.containers.get(member.id)).ports).toEqual(member.ports)
    expect((await eventually(ask)).trim()).toBe(member.name)
    expect(await get(neighbour, addressOf(member))).toBe(member.name)
  })

  test('use the domain of their DHCP config while it is attached', async () => {
    const subnet = await newSubnet()
    const member = await onHost(2, () => makeMember(tenant, subnet))
    const path = `/api/v1/subnets/${subnet}/dhcp-config`
    const config = { domain_name: 'shop.example', range_start: '10.0.0.100', range_end: '10.0.0.110' }
    const resolved = async () => String(await resolves(member, `${member.name}.shop.example`))
    await (await tenant.owner.begin('POST', path, config)).operation.success()
    await eventually(async () => (await resolved()) === addressOf(member))
    expect(await leaseOf(member)).toBe(addressOf(member))
    // An interface that is not a NIC gets an address from the lease range.
    expect(await leaseOf(member, '52:54:00:00:00:99')).toMatch(/^10\.0\.0\.1(0\d|10)$/)
    await (await tenant.owner.begin('DELETE', path)).operation.success()
    await eventually(async () => (await resolved()) === '')
    expect(await resolves(member, `${member.name}.internal`)).toEqual([addressOf(member)])
  })
})

describeHosts('a NIC', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })
  test('is attached to a running container and detached from it, and the container keeps running', async () => {
    const subnet = await newSubnet()
    const neighbour = await onHost(2, () => makeMember(tenant, subnet))
    const plain = await onHost(1, () => makeMember(tenant, subnet, { nics: [] }))
    await (await attach(plain.id, { subnet_id: subnet, ip_address: '10.0.0.77' })).operation.success()
    const member = await now(plain.id)
    expect(member).toMatchObject({ status: 'running', started_at: plain.started_at })
    expect(member.nics).toMatchObject([{ subnet_id: subnet, ip_address: '10.0.0.77' }])
    await finds(neighbour, plain, '10.0.0.77')
    await eventually(async () => (await get(member, addressOf(neighbour))) === neighbour.name)

    // No namespace outlives this restart, so the host attaches the NIC again.
    await (await containerOf(plain)).restart({ t: 0 })
    await eventually(async () => (await get(neighbour, '10.0.0.77')) === plain.name)

    await (await detach(plain.id, member.nics[0]?.id ?? '')).operation.success()
    expect((await now(plain.id)).nics).toEqual([])
    expect(await reaches(neighbour, ['10.0.0.77'])).toEqual([])
    expect(await inside(plain, ['ip', 'address'])).not.toContain('10.0.0.77')
    const again = await onHost(0, () =>
      makeMember(tenant, subnet, { nics: [{ subnet_id: subnet, ip_address: '10.0.0.77' }] }),
    )
    await finds(neighbour, again, '10.0.0.77')
  })

  test('survives restarts of its container', async () => {
    const subnet = await newSubnet()
    const member = await onHost(1, () => makeMember(tenant, subnet))
    const neighbour = await onHost(0, () => makeMember(tenant, subnet))
    await (await containerOf(member)).restart({ t: 0 })
    await finds(neighbour, member, addressOf(member))
    await finds(member, neighbour, addressOf(neighbour))
  })

  test('is restored when the process that keeps its network is killed', async () => {
    const subnet = await newSubnet()
    const member = await onHost(0, () => makeMember(tenant, subnet))
    const neighbour = await onHost(1, () => makeMember(tenant, subnet))
    await eventually(() => Date.now() - Date.parse(String(member['updated_at'])) > 2_500)
    const [pause] =
      (await hosts[0]?.engine.listContainers({
        filters: { label: [`keelson.resource=${member.id}`, 'keelson.kind=pause'] },
      })) ?? []
    await hosts[0]?.engine.getContainer(pause?.Id ?? '').remove({ force: true })
    await eventually(async () => (await now(member.id)).started_at !== member.started_at)
    await eventually(async () => (await get(neighbour, addressOf(member))) === member.name)
  })

  test('takes a free address: one of twenty parallel requests for the same address gets it', async () => {
    const subnet = await newSubnet()
    const asked = Array.from({ length: 20 }, () =>
      tenant.owner.ask('POST', '/api/v1/containers', {
        name: `n${Math.random().toString(36).slice(2)}`,
        image: 'busybox',
        cpu_cores: 0.1,
        memory_mib: 16,
        start: false,
        nics: [{ subnet_id: subnet, ip_address: '10.0.0.50' }],
      }),
    )
    const answers = await Promise.all(asked)
    expect(answers.filter(({ status }) => status === 202)).toHaveLength(1)
    for (const answer of answers.filter(({ status }) => status !== 202))
      expect(answer).toMatchObject({ status: 409, body: { code: 'address_taken' } })
    const won = answers.find(({ status }) => status === 202)?.body as unknown as Member
    expect(won.nics).toMatchObject([{ ip_address: '10.0.0.50' }])
    expect(await tenant.owner.ask('DELETE', `/api/v1/subnets/${subnet}`)).toMatchObject({
      status: 409,
      body: { code: 'subnet_in_use' },
    })
    await (await tenant.containers.delete(won.id)).operation.success()
    await (await tenant.owner.begin('DELETE', `/api/v1/subnets/${subnet}`)).operation.success()
  })

  test.each([
    ['the gateway’s address', '10.0.0.1', 'address_not_usable'],
    ['the broadcast’s address', '10.0.0.255', 'address_not_usable'],
    ['an address outside', '10.0.1.9', 'address_not_usable'],
    ['an address that is lent', '10.0.0.105', 'address_taken'],
    ['an address kept for another', '10.0.0.9', 'address_taken'],
  ])('is refused %s', async (_, ip_address, code) => {
    const subnet = await newSubnet()
    const config = {
      range_start: '10.0.0.100',
      range_end: '10.0.0.110',
      static_leases: [{ mac_address: '52:54:00:00:00:01', ip_address: '10.0.0.9' }],
    }
    const path = `/api/v1/subnets/${subnet}/dhcp-config`
    await (await tenant.owner.begin('POST', path, config)).operation.success()
    const { id } = await tenant.containers.make({ start: false })
    const answer = await tenant.owner.ask('POST', `/api/v1/containers/${id}/nics`, {
      subnet_id: subnet,
      ip_address,
    })
    expect(answer).toMatchObject({ status: 409, body: { code } })
    expect(await now(id)).toMatchObject({ nics: [], operation_id: null, status: 'stopped' })
  })

  test('is refused in a second VPC, and in another tenant’s', async () => {
    const subnet = await newSubnet()
    const { id } = await tenant.containers.make({ start: false, nics: [{ subnet_id: subnet }] })
    const path = `/api/v1/containers/${id}/nics`
    expect(await tenant.owner.ask('POST', path, { subnet_id: await newSubnet() })).toMatchObject({
      status: 409,
      body: { code: 'other_vpc' },
    })
    const other = await makeTenant()
    const theirs = await makeSubnet(other, (await makeVpc(other)).id)
    expect(await tenant.owner.ask('POST', path, { subnet_id: theirs.id })).toMatchObject({ status: 404 })
    const second = await makeSubnet(
      tenant,
      (await tenant.owner.get<{ vpc_id: string }>(`/api/v1/subnets/${subnet}`)).vpc_id,
      {
        cidr: '10.0.1.0/24',
      },
    )
    await (await attach(id, { subnet_id: second.id })).operation.success()
    expect((await now(id)).nics.map(({ subnet_id }) => subnet_id)).toEqual([subnet, second.id])
  })
})
