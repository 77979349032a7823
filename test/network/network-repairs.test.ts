import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { linksOf, run } from '../../drivers/linux/commands.ts'
import { Names } from '../../drivers/linux/names.ts'
import { isNamespace } from '../../drivers/linux/namespaces.ts'
import { asRoot } from '../support/as-root.ts'
import { eventually } from '../support/eventually.ts'
import { finds, get, reaches } from '../support/members.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { addressOf, makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// A host's networks, broken behind the platform's back. The host mends them by itself: nobody asks for anything, and no instance
// starts or ends.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 10 })
})
afterAll(removeTenants)

interface Place {
  /** The VPC's namespace on the host. */
  namespace: string
  /** The subnet's bridge in it. */
  bridge: string
}

const isUp = async ({ namespace, bridge }: Place): Promise<boolean> =>
  (await linksOf(namespace)).get(bridge)?.flags.includes('UP') ?? false

/** Each with what shows that it is mended. */
const breaks: {
  what: string
  break_: (place: Place) => Promise<unknown>
  isMended: (place: Place) => Promise<boolean>
}[] = [
  {
    what: 'the deleted name of a VPC’s namespace',
    break_: ({ namespace }) => run('ip', ['netns', 'delete', namespace]),
    isMended: async (place) => (await isNamespace(place.namespace)) && isUp(place),
  },
  {
    what: 'a bridge that was set down',
    break_: ({ namespace, bridge }) => run('ip', ['-n', namespace, 'link', 'set', bridge, 'down']),
    isMended: isUp,
  },
]

asRoot('a host', () => {
  test.each(breaks)('mends $what by itself', async ({ break_, isMended }) => {
    const vpc = await makeVpc(tenant)
    const subnet = await makeSubnet(tenant, vpc.id)
    const member = await makeMember(tenant, subnet.id)
    const neighbour = await makeMember(tenant, subnet.id)
    // A machine has its end of a NIC open, which keeps a namespace without a name.
    const { id } = await tenant.microvms.make({ nics: [{ subnet_id: subnet.id }] })
    const machine = addressOf((await tenant.microvms.get(id)) as Member)
    await finds(member, neighbour, addressOf(neighbour))
    await eventually(async () => (await reaches(member, [machine])).length === 1)

    const names = new Names(String(member.host_id))
    const place = { namespace: names.vpc(vpc.id), bridge: names.bridge(subnet.id) }
    await break_(place)
    await eventually(() => isMended(place))
    await eventually(async () => (await get(member, addressOf(neighbour))) === neighbour.name)
    await eventually(async () => (await reaches(member, [machine])).length === 1)
    await finds(neighbour, member, addressOf(member))
    // Who joins later is in the same network.
    const late = await makeMember(tenant, subnet.id)
    await finds(late, member, addressOf(member))
    await eventually(async () => (await reaches(late, [machine])).length === 1)

    // The instances have kept their NICs, so their feeds have nothing to tell.
    for (const one of [member, neighbour])
      expect(await tenant.containers.activity(one.id)).toMatchObject([{ kind: 'created' }])
    expect(await tenant.microvms.activity(id)).toMatchObject([{ kind: 'created' }])
  })
})
