import { createHash } from 'node:crypto'
import { beforeAll, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { Operation, sleeper } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

const path = '/api/v1/containers'
const withKey = (key: string) => ({ 'idempotency-key': key })

test('one key sent 20 times in parallel creates one container and returns 20 equal answers', async () => {
  const other = await makeTenant()
  const body = sleeper()
  const key = withKey(newId())
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => other.owner.ask('POST', path, body, key)),
  )
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 202))
  expect(new Set(answers.map((answer) => JSON.stringify(answer.body))).size).toBe(1)
  expect(new Set(answers.map(({ headers }) => headers.get('operation-location'))).size).toBe(1)

  const [first] = answers
  await new Operation(other.owner, first?.headers.get('operation-location') ?? '').success()
  expect(await engine.withLabel('keelson.tenant', other.id)).toHaveLength(1)
  expect(await other.owner.get(path)).toMatchObject({ total: 1 })
  expect(await other.holds()).toMatchObject({ cpu_milli: 100, reservations: 1 })
})

test('a repeated key returns the first answer, whatever happened to the container since', async () => {
  const body = sleeper()
  const key = withKey(newId())
  const { id, body: first, operation } = await tenant.containers.create(body, key)
  await operation.success()
  expect((await tenant.containers.create(body, key)).body).toEqual(first)
  await (await tenant.containers.delete(id)).operation.success()
  expect((await tenant.containers.create(body, key)).body).toEqual(first)
  expect(await tenant.owner.ask('GET', `${path}/${id}`)).toMatchObject({ status: 404 })
})

test('another body or another path under the same key is refused', async () => {
  const key = withKey(newId())
  const { id, operation } = await tenant.containers.create({}, key)
  const mismatch = { status: 422, body: { code: 'idempotency_mismatch' } }
  expect(await tenant.owner.ask('POST', path, sleeper(), key)).toMatchObject(mismatch)
  expect(await tenant.owner.ask('POST', `${path}/${id}/stop`, undefined, key)).toMatchObject(mismatch)
  await operation.success()
})

test('a verb under one key is carried out once', async () => {
  const { id } = await tenant.containers.make()
  const key = withKey(newId())
  const stop = () => tenant.owner.begin('POST', `${path}/${id}/stop`, { grace_sec: 0 }, key)
  const first = await stop()
  await first.operation.success()
  const again = await stop()
  expect(again.operation.id).toBe(first.operation.id)
  expect(await tenant.containers.get(id)).toMatchObject({ status: 'stopped', operation_id: null })
})

test('a refused attempt does not use up its key', async () => {
  const poor = await makeTenant({ max_cpu_cores: 1 })
  const key = withKey(newId())
  const body = sleeper({ cpu_cores: 0.6 })
  const held = await poor.containers.make({ cpu_cores: 0.6, command: ['true'], restart_policy: 'never' })
  expect(await poor.owner.ask('POST', path, body, key)).toMatchObject({
    status: 409,
    body: { code: 'quota_exceeded' },
  })
  await (await poor.containers.delete(held.id)).operation.success()
  const { operation } = await poor.owner.begin('POST', path, body, key)
  await operation.success()
})

test('stores nothing by which a guess at the request could be tested without the platform’s key', async () => {
  const roles = '/api/v1/roles'
  const body = { name: `role-${newId().slice(-12)}`, description: 'a PIN: 1234', permissions: [] }
  const { status } = await tenant.owner.ask('POST', roles, body, withKey(newId()))
  const kept = await mongoose.connection
    .collection('idempotency_keys')
    .find({ tenant_id: tenant.id })
    .toArray()
  const guess = createHash('sha256')
    .update(JSON.stringify(['POST', roles, body]))
    .digest('base64url')
  expect([status, kept.length > 0]).toEqual([201, true])
  expect(kept.map((one) => String(one['fingerprint']))).not.toContain(guess)
})

test('two callers can use the same key independently', async () => {
  const key = withKey(newId())
  const other = await makeTenant()
  const mine = await tenant.containers.create({}, key)
  const theirs = await other.containers.create({}, key)
  expect(theirs.id).not.toBe(mine.id)
})

test.each([
  ['two words', 'two words'],
  ['letters beyond ASCII', '\u00fc'],
  ['256 characters', 'x'.repeat(256)],
])('a key of %s is refused', async (_, key) => {
  const answer = await tenant.owner.ask('POST', path, sleeper(), withKey(key))
  expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_input' } })
})
