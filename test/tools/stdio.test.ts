import { existsSync } from 'node:fs'
import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { processesWith } from '../../drivers/system/programs.ts'
import { setLimits } from '../../models/identity/tenants.ts'
import { asRoot } from '../support/as-root.ts'
import type { Json } from '../support/client.ts'
import { toolsOf } from '../support/clients/tools.ts'
import { makeMcpImage, servers } from '../support/mcp-image.ts'
import { mistakeAt } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Servers of stdio, each in a microVM that is gone after its probe.

let tenant: TestTenant
let tools: ReturnType<typeof toolsOf>

beforeAll(async () => {
  tenant = await makeTenant()
  tools = toolsOf(tenant.owner)
  await makeMcpImage()
})

const stdio = (args: string[], more: Json = {}): Json => ({
  kind: 'mcp',
  transport: 'stdio',
  command: 'node',
  args,
  ...more,
})

/** No microVM of the tenant is left, and none of its processes. */
async function expectNothingLeft(): Promise<void> {
  const { items } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/microvms')
  expect(items).toEqual([])
  expect(await tenant.holds()).toMatchObject({ cpu_milli: 0, memory_mib: 0 })
}

asRoot('a server of stdio', () => {
  test('has the 14 tools of the reference server of files, and its microVM is gone', async () => {
    const { id } = await tools.make(stdio(servers.files))
    const probed = await tools.probe(id)
    expect(probed).toMatchObject({
      status: 200,
      body: { total: 14, transport: 'stdio', truncated: false, changed: null },
    })
    expect(await tools.get(id)).toMatchObject({
      status: 'ok',
      last_probe: { by: 'mcp_tools', transport: 'stdio', tools_count: 14, fault: null },
    })
    await expectNothingLeft()
  })

  test('has its own variables, which nobody sees again, and its subnet', async () => {
    const secret = `planted-secret-of-a-tool-${newId()}`
    const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
    const made = await tools.make(
      stdio([...servers.revealing, 'a word'], { env: { API_KEY: secret }, subnet_id: subnet.id }),
    )
    expect(made).toMatchObject({ env_names: ['API_KEY'], subnet_id: subnet.id, image: null })
    const { status, body } = await tools.probe(made.id)
    expect([status, body['total']]).toEqual([200, 1])
    const [{ description = '' } = {}] = body['tools'] as { description?: string }[]
    const [args, env] = JSON.parse(description) as [string[], Record<string, string>]
    expect(args).toEqual(['a word'])
    expect(env).toMatchObject({ API_KEY: '[secret]' })
    expect(Object.keys(env).filter((name) => name.startsWith('KEELSON'))).toEqual([])
    expect(JSON.stringify([body, await tools.get(made.id)])).not.toContain(secret)
    await expectNothingLeft()
  })

  test('is asked once for callers at the same time', async () => {
    const { id } = await tools.make(stdio(servers.revealing))
    const answers = await Promise.all([tools.probe(id), tools.probe(id)])
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    await expectNothingLeft()
  })

  test('that escapes from npx stays in its microVM', async () => {
    const mark = `/tmp/keelson-escaped-${newId()}`
    const script = `touch ${mark}; ls ${mark} >&2; cat /proc/sys/kernel/hostname >&2`
    const { id } = await tools.make(stdio(['-c', script], { command: 'npx' }))
    const { status, body } = await tools.probe(id)
    expect([status, body['stage'], body['reason']]).toEqual([502, 'initialize', 'command_ended'])
    expect(body['cause']).toContain(mark) // it ran
    expect(body['cause']).toContain('tool-probe-')
    expect(existsSync(mark)).toBe(false)
    expect(await processesWith(mark)).toEqual([])
    await expectNothingLeft()
  })

  test('says why its command was not asked', async () => {
    const none = await tools.make(stdio([], { command: 'no-such-command' }))
    expect(await tools.probe(none.id)).toMatchObject({
      status: 502,
      body: {
        stage: 'initialize',
        reason: 'command_ended',
        cause: expect.stringContaining('no-such-command'),
      },
    })
    const image = `keelson/none-${newId().slice(-12)}:1`
    const unknown = await tools.make(stdio(servers.files, { image }))
    expect(await tools.probe(unknown.id)).toMatchObject({
      status: 502,
      body: { stage: 'connect', reason: 'image_not_found' },
    })
    const small = await makeTenant()
    await setLimits(small.id, { max_ram_gib: 0.25 })
    const its = toolsOf(small.owner)
    const { id } = await its.make(stdio(servers.files))
    expect(await its.probe(id)).toMatchObject({
      status: 502,
      body: { stage: 'connect', reason: 'quota_exceeded' },
    })
    await expectNothingLeft()
  })
})

test('a command needs a subnet of the tenant, and the permission to make microVMs', async () => {
  const subnet_id = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  const other = await makeTenant()
  expect(await toolsOf(other.owner).create(stdio([], { subnet_id }))).toMatchObject(mistakeAt('/subnet_id'))
  const made = await tools.make(stdio([], { env: { KEY: 'value' } }))
  expect(await tools.change(made.id, { subnet_id })).toMatchObject(mistakeAt('/env'))
  expect(await tools.change(made.id, { subnet_id, env: { KEY: 'value' } })).toMatchObject({ status: 200 })
  const role = {
    name: `role-${newId().slice(-12)}`,
    permissions: ['tools:create', 'tools:update', 'tools:read'],
  }
  await tenant.owner.ask('POST', '/api/v1/roles', role)
  const its = toolsOf(await tenant.user(role.name))
  const refusal = { status: 403, body: { permission: 'microvms:create' } }
  expect(await its.create(stdio([]))).toMatchObject(refusal)
  expect(await its.change(made.id, { args: ['other'], env: {} })).toMatchObject(refusal)
})
