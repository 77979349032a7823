import { beforeAll, expect, test } from '@jest/globals'
import { AuditEvent } from '../../models/identity/audit.ts'
import { newId } from '../../lib/ids.ts'
import type { Answer, Client, ContainerBody, Json } from '../support/client.ts'
import { docker, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// One command in a container, as its caller sees it.

let tenant: TestTenant
let container: ContainerBody
beforeAll(async () => {
  tenant = await makeTenant()
  container = await tenant.containers.make({ cpu_cores: 1, memory_mib: 64 })
})

const exec = (body: Json, id = container.id, by: Client = tenant.owner, headers = {}): Promise<Answer> =>
  by.ask('POST', `/api/v1/containers/${id}/exec`, body, headers)
const sh = (script: string, more: Json = {}): Promise<Answer> =>
  exec({ command: ['sh', '-c', script], ...more })

test.each([
  ['its output, both streams, and 0', 'echo out; echo err >&2', 'out\nerr\n', 0],
  ['its exit code', 'echo no; exit 7', 'no\n', 7],
  ['the code of a signal', 'kill -9 $$', '', 137],
  ['characters that are split over frames', 'echo "grüße, 世界 🌍"', 'grüße, 世界 🌍\n', 0],
])('a command gives %s', async (_, script, output, exit_code) => {
  expect(await sh(script)).toMatchObject({ status: 200, body: { output, exit_code, truncated: false } })
})

test('arguments are passed as they are, and read by no shell', async () => {
  const words = ['$HOME', 'a b', '*', '; exit 1', '"']
  const { body } = await exec({ command: ['printf', String.raw`%s\n`, ...words] })
  expect(body).toMatchObject({ output: `${words.join('\n')}\n`, exit_code: 0 })
})

test('a command that takes no end is hung up, and leaves nothing', async () => {
  const { status, body } = await sh('echo begun; sleep 4321', { timeout_sec: 1 })
  expect([status, body]).toEqual([200, { output: 'begun\n', exit_code: null, truncated: false }])
  const { Id } = await engine.only(container.id)
  await eventually(async () => {
    const { Processes } = (await docker.getContainer(Id).top({ ps_args: '-eo pid,args' })) as {
      Processes: string[][]
    }
    return !JSON.stringify(Processes).includes('4321')
  })
})

test('of much output the first MiB is returned', async () => {
  const { body } = await sh('head -c 3000000 /dev/zero | tr "\\\\0" x; exit 5')
  expect(body).toMatchObject({ exit_code: 5, truncated: true })
  expect(String(body['output'])).toHaveLength(1024 * 1024)
})

test('is refused where it cannot run, and to whom it is not allowed', async () => {
  const body = { command: ['true'] }
  const stopped = await tenant.containers.make({ start: false })
  expect(await exec(body, stopped.id)).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
  expect(await exec(body, newId())).toMatchObject({ status: 404 })
  const { owner: stranger } = await makeTenant()
  expect(await exec(body, container.id, stranger)).toMatchObject({ status: 404 })
  const viewer = await tenant.user('viewer')
  expect(await exec(body, container.id, viewer)).toMatchObject({
    status: 403,
    body: { permission: 'containers:console' },
  })
  const wrong = [{}, { command: [] }, { command: 'true' }, { ...body, timeout_sec: 301 }, { command: ['\0'] }]
  for (const one of wrong) expect(await exec(one)).toMatchObject({ status: 422 })
  // A second run would not be the first one's answer.
  expect(await exec(body, container.id, tenant.owner, { 'idempotency-key': newId() })).toMatchObject({
    status: 400,
  })
})

test('is audited without the command', async () => {
  await sh(': remember-this')
  const events = await AuditEvent.find({ tenant_id: tenant.id, resource_id: container.id })
    .sort({ time: -1 })
    .lean()
  expect(events[0]).toMatchObject({ path: expect.stringMatching(/\/exec$/), status: 200 })
  expect(JSON.stringify(events)).not.toContain('remember-this')
})
