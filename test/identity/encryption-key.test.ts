import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { Secret, TOTP } from 'otpauth'
import { newId } from '../../lib/ids.ts'
import { keyIdOf } from '../../lib/seal.ts'
import { keyLine } from '../../script/lib/secrets.ts'
import { Container, openConfigVars, sealConfigVars } from '../../models/compute/containers.ts'
import { DataKey, openDataKeys } from '../../models/data-keys.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { Authenticator } from '../../models/identity/authenticators.ts'
import { MailRecord } from '../../models/identity/mails.ts'
import { hashPassword, User } from '../../models/identity/users.ts'
import { sealedFields } from '../../models/sealed-fields.ts'
import { sealSecret, unsealSecret } from '../../models/secrets.ts'
import { ask, Client, type Json, type Operation } from '../support/client.ts'
import { urlOfRoot } from '../support/database-root.ts'
import { testDrawn } from '../support/drawn.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { makeMachine, replicas, requestToken } from '../support/api-clients.ts'
import { platform, type RoleName, startAll } from '../support/platform.ts'
import { insertContainers } from '../support/rows.ts'
import { sampled } from '../support/sampled.ts'
import { stackSettings } from '../support/stack.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'

// The keys of secrets at rest, and their rotation. A rotation must lose no secret.

const path = '/api/v1/platform/encryption-key'

interface Shown extends Json {
  status: string
  operation_id: string | null
  data_key_id: string
  master_key_ids: string[]
}

let tenant: TestTenant
let operator: Client
beforeAll(async () => {
  tenant = await makeTenant()
  operator = await makeOperator()
})
afterEach(async () => {
  await startAll()
  await eventually(async () => (await shown()).operation_id === null)
})

const shown = (): Promise<Shown> => operator.get<Shown>(path)
const begin = async (): Promise<Operation> => (await operator.begin('POST', `${path}/rotate`)).operation
const rotate = async () => (await begin()).success()

/** The fields that hold values sealed by older keys, read directly from the database. */
async function sealedBefore(): Promise<string[]> {
  const { data_key_id } = await shown()
  const found: string[] = []
  for (const { collection, path: field } of sealedFields()) {
    for await (const document of collection.find({ [field]: { $regex: String.raw`\.` } })) {
      const { [field]: sealed } = document as unknown as Record<string, string>
      if (keyIdOf(sealed ?? '') !== data_key_id) found.push(`${collection.collectionName}.${field}`)
    }
  }
  return found
}

const hasStep = (operation: Operation, step: string) =>
  eventually(async () => (await operation.now()).step?.startsWith(step))

/** Restarts all roles that have read the keys. The host has none. */
async function restart(): Promise<void> {
  for (const role of ['api', 'api-2', 'worker'] as const) {
    await platform.kill(role)
    await platform.start(role)
  }
  await disconnectDatabase()
  await connectDatabase(stackSettings())
}

/** Makes a secret of each kind; the returned function proves that all of them still work. */
async function secretsOfEachKind() {
  const PASSWORD = newId()
  const { owner } = tenant
  const container = await tenant.containers.make({ config_vars: { PASSWORD }, start: false })
  const machine = await makeMachine(owner, ['containers:read'])
  const idempotent = { name: newId(), scopes: ['containers:read'] }
  const key = { 'idempotency-key': newId() }
  const first = await owner.ask('POST', '/api/v1/api-clients', idempotent, key)

  const person = { email: `${newId()}@example.com`, password: 'correct horse battery' }
  const password_hash = await hashPassword(person.password)
  const user = await new User({ tenant_id: tenant.id, roles: [], email: person.email, password_hash }).save()
  const { body: session } = await ask('POST', '/api/v1/auth/login', { body: person })
  const client = new Client(String(session['token']))
  const { body: enrolled } = await client.ask('POST', '/api/v1/account/authenticator')
  const totp = new TOTP({ secret: Secret.fromBase32(String(enrolled['secret'])) })
  const confirm = { otp: totp.generate() }
  const { body: confirmed } = await client.ask('POST', '/api/v1/account/authenticator/confirm', confirm)
  const recoveryCodes = confirmed['recovery_codes'] as string[]

  const mail = { _id: newId(), to: '', created_at: new Date(), due_at: new Date(Date.now() + 86_400_000) }
  const text = newId()
  await new MailRecord({
    ...mail,
    to: person.email,
    text_sealed: await sealSecret({ text }, mail._id),
  }).save()

  return async (): Promise<void> => {
    for (const replica of replicas()) {
      expect((await owner.ask('GET', `${replica}/api/v1/account`)).status).toBe(200)
      const issued = await requestToken(machine, {}, replica)
      expect(issued.status).toBe(200)
      const token = String(issued.body['access_token'])
      for (const at of replicas())
        expect((await ask('GET', `${at}/api/v1/containers`, { token })).status).toBe(200)
      const again = await owner.ask('POST', `${replica}/api/v1/api-clients`, idempotent, key)
      expect([again.status, again.body]).toEqual([201, first.body])

      // Resets the last used step, so that the present code can be used.
      await Authenticator.updateOne({ tenant_id: tenant.id, _id: user._id }, { $set: { last_step: 0 } })
      for (const otp of [totp.generate(), recoveryCodes.pop()]) {
        const login = await ask('POST', `${replica}/api/v1/auth/login`, { body: { ...person, otp } })
        expect(login.status).toBe(200)
      }
    }
    const record = await MailRecord.findById(mail._id).lean()
    expect(await unsealSecret(record?.text_sealed ?? '', mail._id)).toEqual({ text })
    // Remove the container, so that its repair makes the host ask for the config vars.
    if ((await engine.withLabel('keelson.resource', container.id)).length) await engine.remove(container.id)
    await (await tenant.containers.start(container.id)).operation.success()
    expect((await engine.only(container.id)).Config.Env).toContain(`PASSWORD=${PASSWORD}`)
    await (await tenant.containers.stop(container.id)).operation.success()
  }
}

describe('a key rotation', () => {
  test('reseals all secrets with a new key, and all replicas can use them during and after it', async () => {
    const before = await shown()
    const proveGood = await secretsOfEachKind()
    const sealed = await Container.find({ tenant_id: tenant.id }).lean()
    expect(sealed.map(({ config_vars_sealed }) => keyIdOf(config_vars_sealed))).toContain(before.data_key_id)
    const operation = await begin()
    await proveGood() // while it runs
    expect(await operation.success()).toMatchObject({ resource_kind: 'encryption_key', verb: 'rotate' })
    expect(await sealedBefore()).toEqual([])
    await proveGood()
    const after = await shown()
    expect(after).toMatchObject({ status: 'active', operation_id: null, data_key_id: operation.id })
    expect(JSON.stringify(after)).not.toMatch(/wrapped/)
  })

  test('runs only once at a time; it is audited and cannot be cancelled', async () => {
    const operation = await begin()
    const other = await makeOperator()
    for (const who of [operator, other]) {
      expect(await who.ask('POST', `${path}/rotate`)).toMatchObject({
        status: 409,
        body: { code: 'operation_in_progress', operation_id: operation.id },
      })
    }
    expect(await shown()).toMatchObject({ status: 'rotating', operation_id: operation.id })
    await operation.success()
    const events = mongoose.connection.collection('audit_events')
    const outcomes = await events
      .find({ resource_kind: 'encryption_key' })
      .sort({ _id: -1 })
      .limit(3)
      .toArray()
    expect(outcomes.map(({ outcome }) => outcome as string).toSorted()).toEqual([
      'refused',
      'refused',
      'succeeded',
    ])
    await (await other.begin('POST', `${path}/rotate`)).operation.success()
  })
})

test('only one of many processes that start at once on a new database creates the keys', async () => {
  const settings = stackSettings()
  await disconnectDatabase()
  try {
    await connectDatabase({ ...settings, KEELSON_MONGODB_URL: urlOfRoot(`test-${newId().slice(-12)}`) })
    await DataKey.collection.drop()
    await Promise.all(Array.from({ length: 8 }, openDataKeys))
    const keys = await DataKey.find().lean()
    expect(keys.map(({ purpose }) => purpose).toSorted()).toEqual(['hash', 'seal'])
    expect(await unsealSecret(await sealSecret(1, 'here'), 'here')).toBe(1)
    await mongoose.connection.dropDatabase()
  } finally {
    await disconnectDatabase()
    await connectDatabase(settings)
  }
})

describe('the master key', () => {
  const file = stackSettings().KEELSON_MASTER_KEY_FILE
  const lines = (): string => readFileSync(file, 'utf8')
  // Puts the key back after a test that failed half-way: later tests need it.
  const first = lines()
  afterEach(() => {
    if (!lines().includes(first)) appendFileSync(file, first)
  })

  testDrawn('is replaced by adding a line, rotating and removing the old line', async () => {
    const proveGood = await secretsOfEachKind()
    const old = lines()
    const id = `k${newId()}`
    const line = keyLine().replace('k1:', `${id}:`)
    writeFileSync(file, line + old)
    await rotate() // no restart: the file is read again
    await proveGood()
    expect((await shown()).master_key_ids).toEqual([id])

    writeFileSync(file, line)
    await restart()
    await proveGood()
    await rotate()
    await proveGood()
    expect(await sealedBefore()).toEqual([])
  })

  testDrawn(
    'must stay while it wraps keys: a rotation without it fails, names it, and loses nothing',
    async () => {
      const proveGood = await secretsOfEachKind()
      const old = lines()
      const line = keyLine().replace('k1:', `k${newId()}:`)
      writeFileSync(file, line)
      const failed = await (await begin()).end()
      const [id] = old.split(':', 1)
      expect(failed).toMatchObject({ state: 'failed', error: { code: 'master_key_missing' } })
      expect(failed.error?.detail).toContain(id)
      expect((await shown()).master_key_ids).toEqual([id])
      writeFileSync(file, old)
      await proveGood()
      await rotate()
    },
  )

  test('may come from the environment; a key that does not open the keys is refused, naming the setting', async () => {
    const settings = stackSettings()
    const given = lines().trim()
    await disconnectDatabase()
    const connect = (KEELSON_MASTER_KEY: string, KEELSON_MASTER_KEY_FILE = '/none') =>
      connectDatabase({ ...settings, KEELSON_MASTER_KEY, KEELSON_MASTER_KEY_FILE })
    try {
      await connect(given)
      expect(await unsealSecret(await sealSecret(1, 'here'), 'here')).toBe(1)
      await disconnectDatabase()

      const others = keyLine().trim()
      const missing = connect(others.replace('k1:', 'other:'))
      await expect(missing).rejects.toThrow(
        /^the master key .* is missing in KEELSON_MASTER_KEY or its file$/,
      )
      await disconnectDatabase()
      const sameId = connect(others.replace('k1:', `${given.split(':', 1)[0]}:`))
      await expect(sameId).rejects.toThrow(
        /^the master key .* is another key in KEELSON_MASTER_KEY or its file$/,
      )
      await disconnectDatabase()
    } finally {
      await connectDatabase(settings)
    }
  })
})

describe('a key rotation', () => {
  const rows = 4_000
  let crowd: TestTenant
  beforeAll(async () => {
    crowd = await makeTenant()
    await insertContainers(
      crowd.id,
      Array.from({ length: rows }, (_, i) => ({ name: `row-${i}` })),
    )
  })

  const sealedBy = (key: string): Promise<number> =>
    Container.countDocuments({ tenant_id: crowd.id, config_vars_sealed: { $regex: `^${key}` } })

  test.each(sampled<RoleName>(['worker', 'mongodb'], 1))('completes after a kill of the %s', async (role) => {
    expect(await sealedBefore()).toEqual([])
    const operation = await begin()
    await hasStep(operation, 'waiting')
    await platform.kill(role)
    await platform.start(role)
    const done = await eventually(async () => (await sealedBy(operation.id)) || null)
    await platform.kill(role)
    expect(done).toBeLessThan(rows) // in the middle
    await platform.start(role)
    await operation.success()
    expect(await sealedBy(operation.id)).toBe(rows)
    expect(await sealedBefore()).toEqual([])
    expect((await shown()).data_key_id).toBe(operation.id) // only one new key, however often the step was retried
  })

  testDrawn('does not overwrite a change that is made meanwhile', async () => {
    const ids = (await Container.find({ tenant_id: crowd.id }, { _id: 1 }).lean()).map(({ _id }) => _id)
    const written = new Map<string, string>()
    const operation = await begin()
    const ended = new AbortController()
    const change = async (): Promise<void> => {
      while (!ended.signal.aborted) {
        const _id = ids[Math.floor(Math.random() * rows)] ?? ''
        if (written.has(_id)) continue
        const config_vars_sealed = await sealConfigVars(crowd.id, { ID: _id })
        await Container.updateOne({ _id, tenant_id: crowd.id }, { $set: { config_vars_sealed } })
        written.set(_id, config_vars_sealed)
        if (written.size > rows / 2) return
      }
    }
    await hasStep(operation, 'waiting')
    await Promise.all([...Array.from({ length: 4 }, change), operation.success().then(() => ended.abort())])
    expect(written.size).toBeGreaterThan(100)
    expect(await sealedBefore()).toEqual([])
    for (const container of await Container.find({ tenant_id: crowd.id }).lean()) {
      const expected = written.has(container._id) ? { ID: container._id } : {}
      expect(await openConfigVars(container)).toEqual(expected)
    }
  })
})

describe('an older data key', () => {
  testDrawn('opens late writes, and is removed a day after its replacement if it seals nothing', async () => {
    const { id } = await tenant.containers.make({ config_vars: { A: 'b' }, start: false })
    const one = { _id: id, tenant_id: tenant.id }
    const late = (await Container.findOne(one).lean())?.config_vars_sealed ?? ''
    await rotate()
    // Like a write by a replica that was delayed since before the rotation.
    await Container.updateOne(one, { $set: { config_vars_sealed: late } })
    const container = async () => (await Container.findOne(one).lean())!
    expect(await openConfigVars(await container())).toEqual({ A: 'b' })

    const old = keyIdOf(late)
    await DataKey.updateOne({ _id: old }, { $set: { replaced_at: new Date(Date.now() - 25 * 3_600_000) } })
    const { id: newest } = await rotate()
    expect(keyIdOf((await container()).config_vars_sealed)).toBe(newest)
    expect(await openConfigVars(await container())).toEqual({ A: 'b' })
    expect(await DataKey.exists({ _id: old })).toBeNull()
    expect(await DataKey.exists({ purpose: 'seal', replaced_at: { $ne: null } })).not.toBeNull() // replaced just now
  })

  testDrawn(
    'stays if a secret cannot be opened: the rotation names it and fails, the next one succeeds',
    async () => {
      const { id } = await tenant.containers.make({ config_vars: { A: 'b' }, start: false })
      const one = { _id: id, tenant_id: tenant.id }
      const good = (await Container.findOne(one).lean())?.config_vars_sealed ?? ''
      await Container.updateOne(one, { $set: { config_vars_sealed: `${good.slice(0, -4)}AAAA` } })
      await DataKey.updateMany({ replaced_at: { $ne: null } }, { $set: { replaced_at: new Date(0) } })
      const older = await DataKey.countDocuments({ replaced_at: { $ne: null } })

      const failed = await (await begin()).end()
      expect(failed).toMatchObject({ state: 'failed', error: { code: 'secrets_unreadable' } })
      expect(failed.error?.detail).toContain(`containers.config_vars_sealed of ${id}`)
      expect(await shown()).toMatchObject({ status: 'active', status_reason: failed.error?.detail })
      expect(await sealedBefore()).toEqual(['containers.config_vars_sealed'])
      expect(await DataKey.countDocuments({ replaced_at: { $ne: null } })).toBe(older + 1)

      await Container.updateOne(one, { $set: { config_vars_sealed: good } })
      await rotate()
      expect(await sealedBefore()).toEqual([])
      expect(await DataKey.countDocuments({ replaced_at: { $ne: null } })).toBe(2)
    },
  )
})
