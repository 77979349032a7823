import { afterAll, expect, test } from '@jest/globals'
import type { Json } from '../support/client.ts'
import { shell } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { holdPort } from '../support/held-port.ts'
import { facts } from '../support/stack.ts'
import { holdsNothing, makeTenant } from '../support/tenants.ts'

// A container that cannot be created ends in a failed operation with a reason, and leaves nothing behind.

const { port, held } = await holdPort(0)
afterAll(() => void held.close())

const cases: { what: string; spec: Json; code: string; reason: RegExp }[] = [
  {
    what: 'an image that is nowhere',
    spec: { image: 'localhost:1/no-such-image' },
    code: 'image_not_found',
    reason: /no-such-image/,
  },
  {
    what: 'a host port that another program has',
    spec: { ports: [{ container_port: 80, host_port: port }] },
    code: 'port_in_use',
    reason: new RegExp(String(port)),
  },
  {
    what: 'more than any host has free',
    spec: { cpu_cores: 500 },
    code: 'no_capacity',
    reason: /No host has 500 cpu cores/,
  },
  {
    what: 'a command that ends at once',
    spec: shell('echo no configuration >&2; exit 3'),
    code: 'exited_at_once',
    reason: /exit code 3.*no configuration/,
  },
  {
    what: 'a command that is not in the image',
    spec: { command: ['no-such-command'] },
    code: 'command_not_started',
    reason: /no-such-command/,
  },
]

test.each(cases)('a container fails with a reason: $what', async ({ spec, code, reason }) => {
  const tenant = await makeTenant({ max_cpu_cores: 1000 })
  const { id, operation } = await tenant.containers.create(spec)
  const { state, error } = await operation.end()
  expect({ state, error }).toMatchObject({
    state: 'failed',
    error: { code, status: 409, title: expect.any(String) },
  })
  expect(error?.detail ?? error?.title).toMatch(reason)

  const container = await tenant.containers.get(id)
  expect(container).toMatchObject({ status: 'error', operation_id: null, host_id: null })
  expect(container.status_reason).toMatch(reason)
  expect(await engine.withLabel('keelson.resource', id)).toEqual([])
  expect(await tenant.holds()).toEqual(holdsNothing)
  await (await tenant.containers.delete(id)).operation.success()
})

test('a failed container can be corrected and started', async () => {
  const tenant = await makeTenant()
  const { id, operation } = await tenant.containers.create({ command: ['false'] })
  expect(await operation.end()).toMatchObject({ state: 'failed' })
  await (await tenant.containers.update(id, { command: ['sleep', '3600'] })).operation.success()
  await (await tenant.containers.start(id)).operation.success()
  expect(await tenant.containers.get(id)).toMatchObject({ status: 'running', status_reason: null })
  expect(await tenant.holds()).toEqual({ cpu_milli: 100, memory_mib: 16, reservations: 1 })
})

test('a failed start leaves the container stopped, with its files', async () => {
  const tenant = await makeTenant()
  const { id } = await tenant.containers.make(shell('test ! -e /ran || exit 9; touch /ran; sleep 3600'))
  await (await tenant.containers.stop(id)).operation.success()
  const { operation } = await tenant.containers.start(id)
  expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'exited_at_once' } })
  const container = await tenant.containers.get(id)
  expect(container).toMatchObject({ status: 'stopped', desired_state: 'stopped' })
  expect(container.status_reason).toMatch(/exit code 9/)
  expect((await engine.only(id)).State.Running).toBe(false)
})

test('no problem document names the host', async () => {
  const tenant = await makeTenant()
  const { id, operation } = await tenant.containers.create({ image: 'localhost:1/no-such-image' })
  const said = JSON.stringify([(await operation.end()).error, await tenant.containers.get(id)])
  expect(said).not.toMatch(/docker\.sock|node_modules|at async| dial tcp/)
  expect(said).not.toContain(facts().state)
})
