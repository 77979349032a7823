import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { setLimits } from '../../models/identity/tenants.ts'
import { clockErrorMs } from '../support/clocks.ts'
import type { Json } from '../support/client.ts'
import { closeConsoles } from '../support/console.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import {
  bootId,
  clockOff,
  counter,
  countedBy,
  countsOn,
  guests,
  inSequence,
  linesOf,
  outputOf,
} from '../support/microvms.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'

// Each operation on a microVM, and its refusals. Guests boot slowly here: each test has one or two.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
afterAll(closeConsoles)

const path = '/api/v1/microvms'
const conflict = (state: string) => ({ status: 409, body: { code: 'state_conflict', state } })
const ask = (verb: string, id: string, body?: Json) => tenant.owner.ask('POST', `${path}/${id}/${verb}`, body)

test('a microVM is created, logs, runs commands, keeps its root disk over stop and start, and is deleted cleanly', async () => {
  const script = 'echo "hello $GREETING"; echo oops >&2; exec sleep 3600'
  const { id, body, operation } = await tenant.microvms.create({
    command: ['sh', '-c', script],
    config_vars: { GREETING: 'world' },
    tags: { team: 'blue' },
  })
  expect(body).toMatchObject({ status: 'creating', desired_state: 'running', root_disk_gib: 1 })
  await operation.success()
  expect(await tenant.microvms.get(id)).toMatchObject({
    status: 'running',
    status_reason: null,
    operation_id: null,
    tags: { team: 'blue' },
    image_digest: expect.stringMatching(/^sha256:/),
    started_at: expect.any(String),
    host_id: expect.any(String),
  })
  expect(await guests(id)).toHaveLength(1)
  const said = await eventually(async () => {
    const lines = await linesOf(tenant, id)
    return lines.length >= 2 && lines.map(({ stream, line }) => [stream, line])
  })
  expect(Object.fromEntries(said)).toEqual({ stderr: 'oops', stdout: 'hello world' })
  expect(await outputOf(tenant, id, 'echo kept >/file; sync; nproc')).toBe('1')
  const answer = await ask('exec', id, { command: ['sh', '-c', 'echo "$1"; exit 7', 'sh', 'a  b'] })
  expect(answer).toMatchObject({ status: 200, body: { output: 'a  b\n', exit_code: 7, truncated: false } })
  expect((await tenant.storage()).disk_gib).toBe(1)

  await (await tenant.microvms.stop(id, { grace_sec: 5 })).operation.success()
  expect(await tenant.microvms.get(id)).toMatchObject({ status: 'stopped', desired_state: 'stopped' })
  expect(await guests(id)).toEqual([])
  expect(await ask('stop', id)).toMatchObject(conflict('stopped'))
  expect(await ask('suspend', id)).toMatchObject(conflict('stopped'))
  await (await tenant.microvms.start(id)).operation.success()
  expect(await outputOf(tenant, id, 'cat /file')).toBe('kept')

  await (await tenant.microvms.delete(id)).operation.success()
  expect(await tenant.owner.ask('GET', `${path}/${id}`)).toMatchObject({ status: 404 })
  expect(await guests(id)).toEqual([])
  expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
  expect(await tenant.holds()).toEqual(holdsNothing)
})

describe('a suspended microVM', () => {
  test('frees CPU and memory and resumes exactly where it stopped; its fork continues independently', async () => {
    const { id } = await tenant.microvms.make(counter)
    await countsOn(tenant, id)
    const boot = await bootId(tenant, id)
    await (await tenant.microvms.suspend(id)).operation.success()
    expect(await tenant.microvms.get(id)).toMatchObject({ status: 'suspended', desired_state: 'suspended' })
    expect(await guests(id)).toEqual([])
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 0, memory_mib: 0 })
    expect((await tenant.storage()).disk_gib).toBe(2) // with its memory's file
    for (const verb of ['suspend', 'start', 'reboot'])
      expect(await ask(verb, id)).toMatchObject(conflict('suspended'))

    const name = `fork-of-${id.slice(-8)}`
    const fork = await tenant.microvms.fork(id, { name, tags: { made: 'of another' } })
    expect(fork.body).toMatchObject({
      status: 'creating',
      name,
      tags: { made: 'of another' },
      memory_mib: 64,
    })
    await fork.operation.success()
    expect(await tenant.microvms.get(id)).toMatchObject({ status: 'suspended', operation_id: null })
    expect(await outputOf(tenant, fork.id, 'hostname')).toBe(name)
    const forked = await eventually(async () => {
      const numbers = await countedBy(tenant, fork.id)
      return numbers.length > 2 && numbers
    })
    const [first = 0] = forked
    expect(forked).toEqual(inSequence(forked).map((number) => number + first - 1))

    const begun = Date.now()
    await (await tenant.microvms.resume(id)).operation.success()
    const tookMs = Date.now() - begun
    expect(await tenant.microvms.get(id)).toMatchObject({ status: 'running', desired_state: 'running' })
    expect(await bootId(tenant, id)).toBe(boot)
    expect(await clockOff(tenant, id)).toBeLessThan(clockErrorMs(tookMs))
    const numbers = await countsOn(tenant, id)
    expect(numbers).toEqual(inSequence(numbers))
    expect(await ask('resume', id)).toMatchObject(conflict('running'))
    expect(await ask('fork', id, { name: 'never' })).toMatchObject(conflict('running'))
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 2000, memory_mib: 128 })
    expect((await tenant.storage()).disk_gib).toBe(2) // of both root disks
  })

  testDrawn(
    'takes storage for its memory: beyond the limit it is refused, and the microVM runs on',
    async () => {
      const small = await makeTenant({ max_storage_gib: 2 })
      const { id } = await small.microvms.make()
      await setLimits(small.id, { max_storage_gib: 1 })
      const refused = await small.owner.ask('POST', `${path}/${id}/suspend`)
      expect(refused).toMatchObject({
        status: 409,
        body: { code: 'quota_exceeded', limit: 'max_storage_gib' },
      })
      expect(await small.microvms.get(id)).toMatchObject({ status: 'running', operation_id: null })
      expect(await guests(id)).toHaveLength(1)
      await setLimits(small.id, { max_storage_gib: 2 })
      await (await small.microvms.suspend(id)).operation.success()
      expect((await small.storage()).disk_gib).toBe(2)
      await (await small.microvms.stop(id)).operation.success()
      expect((await small.storage()).disk_gib).toBe(1)
    },
  )

  testDrawn('stays suspended if the quota has no room to resume it; a stop discards its memory', async () => {
    const small = await makeTenant({ max_cpu_cores: 1 })
    const { id } = await small.microvms.make()
    await (await small.microvms.suspend(id)).operation.success()
    const other = await small.containers.make({ cpu_cores: 0.5, start: false })
    const refused = await small.owner.ask('POST', `${path}/${id}/resume`)
    expect(refused).toMatchObject({ status: 409, body: { code: 'quota_exceeded', limit: 'max_cpu_cores' } })
    expect(await small.microvms.get(id)).toMatchObject({ status: 'suspended', operation_id: null })
    await (await small.containers.delete(other.id)).operation.success()
    await (await small.microvms.stop(id)).operation.success()
    expect(await small.microvms.get(id)).toMatchObject({ status: 'stopped' })
    await (await small.microvms.start(id)).operation.success()
    expect(await small.microvms.get(id)).toMatchObject({ status: 'running' })
  })
})

testDrawn(
  'a microVM’s change of size is listed as pending, and applied by its next start or reboot',
  async () => {
    const { id } = await tenant.microvms.make()
    const boot = await bootId(tenant, id)
    await (await tenant.microvms.update(id, { memory_mib: 96, tags: { size: 'larger' } })).operation.success()
    expect(await tenant.microvms.get(id)).toMatchObject({
      memory_mib: 96,
      pending_changes: ['memory_mib'],
      tags: { size: 'larger' },
    })
    const smaller = await tenant.owner.ask('PUT', `${path}/${id}`, { root_disk_gib: 0 })
    expect(smaller).toMatchObject({ status: 422, body: { errors: [{ pointer: '/root_disk_gib' }] } })
    await (await tenant.microvms.reboot(id)).operation.success()
    expect(await tenant.microvms.get(id)).toMatchObject({ status: 'running', pending_changes: [] })
    expect(await bootId(tenant, id)).not.toBe(boot)
    const memory = Number(await outputOf(tenant, id, "awk '/MemTotal/{print $2}' /proc/meminfo"))
    expect(memory).toBeGreaterThan(64 * 1024)
  },
)

testDrawn('a microVM whose process is killed is started again, and its feed says so', async () => {
  const { id } = await tenant.microvms.make()
  const [pid = 0] = await guests(id)
  process.kill(pid, 'SIGKILL')
  await eventually(async () => {
    const [now] = await guests(id)
    return now !== undefined && now !== pid && (await tenant.microvms.get(id)).status === 'running'
  })
  expect(await tenant.microvms.activity(id)).toMatchObject([{ kind: 'created' }, { kind: 'repair' }])
})

testDrawn('a command that fails at once fails the microVM’s creation, and nothing is left', async () => {
  const { id, operation } = await tenant.microvms.create({ command: ['no-such-command'] })
  expect(await operation.end()).toMatchObject({
    state: 'failed',
    error: { code: 'command_not_started' },
  })
  expect(await tenant.microvms.get(id)).toMatchObject({ status: 'error' })
  expect(await guests(id)).toEqual([])
})
