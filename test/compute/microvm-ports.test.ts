import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { processesWith } from '../../drivers/system/programs.ts'
import type { Accepted, ContainerBody, Json } from '../support/client.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { holdPort } from '../support/held-port.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { guests } from '../support/microvms.ts'
import { platform } from '../support/platform.ts'
import { holdsNothing, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// A microVM's ports are published on its host and lead to its first NIC, also after a restart of the microVM, its host
// worker or the port helper.

const path = '/api/v1/microvms'
let tenant: TestTenant
let vpc: string
let subnet: string

type Port = ContainerBody['ports'][number]

/** The page on port 80; null if nothing answers. */
const said = async ({ host_address, host_port }: Port): Promise<string | null> => {
  try {
    const signal = AbortSignal.timeout(5_000)
    return (await (await fetch(`http://${host_address}:${host_port}/`, { signal })).text()).trim()
  } catch {
    return null
  }
}

const carriers = async (id: string) =>
  (await processesWith(`${id}/ports.json`)).filter(({ args }) => args.includes('carry'))
const done = async (accepted: Promise<Accepted>) => (await accepted).operation.success()
const now = async (id: string) => (await tenant.microvms.get(id)) as Member
const served = (name: string, port: Port) => eventually(async () => (await said(port)) === name)

const server = 'mkdir -p /tmp/www; hostname >/tmp/www/index.html; exec httpd -f -p 80 -h /tmp/www'
const serving = (over: Json = {}): Json => ({
  command: ['sh', '-c', server],
  nics: [{ subnet_id: subnet }],
  ports: [{ container_port: 80 }],
  ...over,
})

describeHosts('published ports', () => {
  beforeAll(async () => {
    tenant = await makeTenant({ max_vpcs: 10 })
    vpc = (await makeVpc(tenant)).id
    subnet = (await makeSubnet(tenant, vpc, { nat: false })).id
    await open([first])
  })
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('reach their microVM after a kill of the worker or the port helper, and after a suspension', async () => {
    const udp = { container_port: 5353, protocol: 'udp' }
    const { id, name, ports } = await tenant.microvms.make(serving({ ports: [{ container_port: 80 }, udp] }))
    const [port] = ports as [Port]
    expect(ports).toMatchObject([{ container_port: 80, protocol: 'tcp' }, udp])
    await served(name, port)

    const [carrier] = await carriers(id)
    await platform.kill('host')
    await platform.start('host')
    await served(name, port)
    expect((await carriers(id)).map(({ pid }) => pid)).toEqual([carrier?.pid])
    process.kill(carrier?.pid ?? 0, 'SIGKILL')
    await served(name, port)

    await done(tenant.microvms.suspend(id))
    expect(await said(port)).toBeNull()
    expect(await carriers(id)).toEqual([])
    await done(tenant.microvms.resume(id))
    expect((await now(id)).ports).toEqual(ports)
    await served(name, port)
    await done(tenant.microvms.delete(id))
    expect(await carriers(id)).toEqual([])
  })

  testDrawn('follow the next NIC and the move to another host, and end with the microVM', async () => {
    const { id, name, ports } = await tenant.microvms.make(serving())
    const [port] = ports as [Port]
    const [nic] = (await now(id)).nics
    const detach = `${path}/${id}/nics/${nic?.id}`
    expect(await tenant.owner.ask('DELETE', detach)).toMatchObject({
      status: 409,
      body: { code: 'ports_need_nic' },
    })
    const other = await makeSubnet(tenant, vpc, { cidr: '10.0.1.0/24' })
    await done(tenant.owner.begin('POST', `${path}/${id}/nics`, { subnet_id: other.id }))
    await done(tenant.owner.begin('DELETE', detach))
    await served(name, port)

    await open([second])
    await done(tenant.microvms.reschedule(id))
    await open([first])
    const [there] = (await now(id)).ports as [Port]
    expect(there.host_address).not.toBe(port.host_address)
    await served(name, there)
    await done(tenant.microvms.stop(id))
    expect(await carriers(id)).toEqual([])
    await done(tenant.microvms.delete(id))
  })

  testDrawn(
    'are refused if the host port is taken or there is no NIC; a failed creation leaves nothing',
    async () => {
      const unreachable = {
        ...serving(),
        nics: [],
        image: 'busybox',
        name: 'alone',
        cpu_cores: 1,
        memory_mib: 64,
      }
      const needsNic = { status: 422, body: { errors: [{ pointer: '/ports' }] } }
      expect(await tenant.owner.ask('POST', path, unreachable)).toMatchObject(needsNic)

      const small = await makeTenant()
      const its = await makeSubnet(small, (await makeVpc(small)).id)
      const { port, held } = await holdPort(81)
      const fixed = { nics: [{ subnet_id: its.id }], ports: [{ container_port: 80, host_port: port }] }
      try {
        const { id, operation } = await small.microvms.create(serving(fixed))
        expect(await operation.end()).toMatchObject({
          state: 'failed',
          error: { code: 'port_in_use' },
        })
        expect(await guests(id)).toEqual([])
        expect(await carriers(id)).toEqual([])
        expect(await small.holds()).toEqual(holdsNothing)
      } finally {
        held.close()
      }
    },
  )
})
