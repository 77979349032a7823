import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { sleeper, sleepingGuest } from '../support/client.ts'
import { describeHosts, first } from '../support/describe-hosts.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// A name in a VPC resolves to one member, whatever kind of instance it is. None of these instances is started.

const taken = { status: 409, body: { code: 'name_taken' } }
let tenant: TestTenant

const container = (name: string, subnet_id?: string) =>
  tenant.owner.ask(
    'POST',
    '/api/v1/containers',
    sleeper({ name, start: false, ...(subnet_id ? { nics: [{ subnet_id }] } : {}) }),
  )
const microvm = (name: string, subnet_id?: string) =>
  tenant.owner.ask(
    'POST',
    '/api/v1/microvms',
    sleepingGuest({ name, start: false, ...(subnet_id ? { nics: [{ subnet_id }] } : {}) }),
  )

describeHosts('a name in a VPC', () => {
  beforeAll(async () => {
    tenant = await makeTenant({ max_vpcs: 10 })
    await open([first])
  })
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('belongs to one member of any kind, from its creation or a later NIC until the member is gone', async () => {
    const vpc = await makeVpc(tenant)
    const [here, there] = [
      await makeSubnet(tenant, vpc.id),
      await makeSubnet(tenant, vpc.id, { cidr: '10.0.1.0/24' }),
    ]
    const elsewhere = await makeSubnet(tenant, (await makeVpc(tenant)).id)
    const { id } = await tenant.containers.make({ name: 'web', start: false, nics: [{ subnet_id: here.id }] })
    expect(await microvm('web', there.id)).toMatchObject(taken)

    const late = await tenant.microvms.make({ name: 'web', start: false })
    const attach = `/api/v1/microvms/${late.id}/nics`
    expect(await tenant.owner.ask('POST', attach, { subnet_id: there.id })).toMatchObject(taken)
    const other = await tenant.owner.begin('POST', attach, { subnet_id: elsewhere.id })
    await other.operation.success()
    await (await tenant.microvms.delete(late.id)).operation.success()

    await (await tenant.containers.delete(id)).operation.success()
    expect(await microvm('web', there.id)).toMatchObject({ status: 202 })
  })

  test('belongs to one of the members created at the same time', async () => {
    const vpc = await makeVpc(tenant)
    const subnets = [
      await makeSubnet(tenant, vpc.id),
      await makeSubnet(tenant, vpc.id, { cidr: '10.0.1.0/24' }),
    ]
    for (let round = 0; round < 5; round++) {
      const name = `twin-${round}`
      const answers = await Promise.all([container(name, subnets[0]?.id), microvm(name, subnets[1]?.id)])
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202, 409]))
    }
  })
})
