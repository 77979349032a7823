import { createWriteStream } from 'node:fs'
import { copyFile, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Secret, TOTP } from 'otpauth'
import { newId } from '../../lib/ids.ts'
import { readKeyRing } from '../../lib/seal.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { freshKeys, hashKey } from '../../models/data-keys.ts'
import { hashPassword, User } from '../../models/identity/users.ts'
import { loadAppImages } from '../support/app-images.ts'
import { ask, Client, sleeper, smallVm } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { connectorsOf } from '../support/clients/connectors.ts'
import { engine } from '../support/engine.ts'
import '../support/exclusive.ts'
import { decodedHistory, textOfHistory } from '../support/histories.ts'
import { mailedToken } from '../support/mailbox.ts'
import { makeMachine, tokenOf } from '../support/api-clients.ts'
import { plantAll, planted } from '../support/planted.ts'
import { allRecords, secretsIn } from '../support/secret-search.ts'
import { layout, stackSettings } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Secrets must not appear in anything that the platform writes. This file runs last: it adds a secret of each kind,
// then searches for all that the run's tests have sent and received (test/support/planted.ts).

const configVar = `planted-${newId()}`
const userData = `planted-${newId()}`
const envValues = [`planted-${newId()}`, `planted-${newId()}`]
let folder: string
let tenant: TestTenant

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-secrets-'))
  tenant = await makeTenant()
  await useConfigVars()
  await useUserData()
  await useEnvs()
  await useIdentity()
  await useConnectors()
  plantAll(await keys())
})
afterAll(() => rm(folder, { recursive: true, force: true }))

test('the tests have planted a secret of each kind', () => {
  const all = planted()
  const kinds = [
    /^kls_/,
    /^kcs_/,
    /^klb_/,
    /^kli_/,
    /^klp_/,
    /^ey.*\..*\./,
    /^[A-Z2-7]{32}$/,
    /^[A-Z2-7]{5}-[A-Z2-7]{5}$/,
  ]
  expect(kinds.filter((kind) => !all.some((secret) => kind.test(secret)))).toEqual([])
  expect(all).toEqual(
    expect.arrayContaining([configVar, userData, ...envValues, apiKey, password, ...readOwner()]),
  )
})

test('the search finds a secret that is there', async () => {
  const file = join(folder, 'with-one')
  await writeFile(file, `before ${configVar} after`)
  expect(await secretsIn([file])).toEqual([`${file}:${configVar}`])
})

test('no log holds a secret', async () => {
  const kept = []
  for (const name of await readdir(join(layout.state, 'log'))) {
    // A copy: the log goes on meanwhile.
    await copyFile(join(layout.state, 'log', name), join(folder, name))
    kept.push(join(folder, name))
  }
  expect(await secretsIn(kept)).toEqual([])
})

test('neither Temporal’s database nor a decoded history holds a secret', async () => {
  const databases = (await readdir(layout.state)).filter((name) => name.startsWith('temporal.db'))
  expect(databases).not.toEqual([])
  expect(await secretsIn(databases.map((name) => join(layout.state, name)))).toEqual([])

  const temporal = temporalClient(stackSettings())
  const histories = join(folder, 'histories')
  async function* lines() {
    for await (const { workflowId } of temporal.workflow.list()) {
      const history = await decodedHistory(temporal, workflowId).catch(() => null) // retention may have removed it
      if (history) yield `${textOfHistory(history)}\n`
    }
  }
  await pipeline(Readable.from(lines()), createWriteStream(histories))
  await temporal.connection.close()
  expect(await readFile(histories, 'utf8')).toContain('"Run container ') // a summary, which is sealed as the rest is
  expect(await secretsIn([histories])).toEqual([])
})

test('no record holds a secret', async () => {
  const dump = join(folder, 'dump')
  await pipeline(Readable.from(allRecords()), createWriteStream(dump))
  expect(await secretsIn([dump])).toEqual([])
})

test('no answer shows a secret again', async () => {
  for (const path of [
    'containers',
    'vms',
    'operations',
    'audit-events',
    'api-clients',
    'connectors',
    'account',
    'account/sessions',
    `deploy-servers/${deployServer}/applications`,
    `deploy-servers/${deployServer}/deployments`,
  ]) {
    const text = JSON.stringify(await tenant.owner.get(`/api/v1/${path}`))
    expect(planted().filter((secret) => text.includes(secret))).toEqual([])
  }
})

const password = `planted ${newId()}`
const readOwner = (): string[] => [owner.password]
let owner: { email: string; password: string }

/** Creates the secrets of a user and of a machine, by all the ways to get them. */
async function useIdentity(): Promise<void> {
  owner = JSON.parse(await readFile(join(layout.state, 'owner.json'), 'utf8')) as typeof owner
  await ask('POST', '/api/v1/auth/login', { body: owner })

  const email = `${newId()}@example.com`
  const password_hash = await hashPassword(password)
  await new User({ tenant_id: tenant.id, email, password_hash, roles: ['viewer'] }).save()
  const login = (more: object = {}) =>
    ask('POST', '/api/v1/auth/login', { body: { email, password, ...more } })
  const person = new Client(String((await login()).body['token']))
  const { secret } = (await person.ask('POST', '/api/v1/account/authenticator')).body
  const otp = (steps: number): string =>
    new TOTP({ secret: Secret.fromBase32(String(secret)) }).generate({
      timestamp: Date.now() + steps * 30_000,
    })
  await person.ask('POST', '/api/v1/account/authenticator/confirm', { otp: otp(0) })
  expect(await login({ otp: otp(1), remember: true })).toMatchObject({ status: 200 })

  const machine = await makeMachine(tenant.owner, ['containers:read'])
  await ask('GET', '/api/v1/containers', { token: await tokenOf(machine) })
  await tenant.owner.ask('POST', `/api/v1/api-clients/${machine.id}/rotate`)

  const invited = `${newId()}@example.com`
  await tenant.owner.ask('POST', '/api/v1/users', { email: invited, roles: ['viewer'] })
  const invitation = { token: await mailedToken(invited), password }
  const accepted = await ask('POST', '/api/v1/auth/accept-invitation', { body: invitation })
  expect(accepted).toMatchObject({ status: 204 })

  await ask('POST', '/api/v1/auth/password-reset', { body: { email } })
  const token = await mailedToken(email)
  const reset = await ask('POST', '/api/v1/auth/password-reset/confirm', { body: { token, password } })
  expect(reset).toMatchObject({ status: 204 })
}

const apiKey = `planted-${newId()}`

/** A key for a provider that does not answer, and the same key for one that is not there. */
async function useConnectors(): Promise<void> {
  const connectors = connectorsOf(tenant.owner)
  const { status, body } = await connectors.import({ provider: 'openai', api_key: apiKey })
  expect([status, body['status']]).toEqual([201, 'unchecked'])
  expect(await connectors.check(String(body['id']))).toMatchObject({ status: 503 })
  const nowhere = { provider: 'openai_compatible', base_url: 'https://169.254.169.254', api_key: apiKey }
  expect(await connectors.import(nowhere)).toMatchObject({ status: 422 })
}

/** The master keys, and the keys that they wrap. */
async function keys(): Promise<string[]> {
  const masters = readKeyRing(stackSettings().KEELSON_MASTER_KEY_FILE).keys.values()
  const all = [...masters, ...(await freshKeys()).keys.values(), hashKey()]
  return all.map((key) => key.export().toString('base64'))
}

/** Uses config vars in failures and repairs too. */
async function useConfigVars(): Promise<void> {
  const config_vars = { PASSWORD: configVar }
  const create = (over: object) =>
    tenant.owner.ask('POST', '/api/v1/containers', sleeper({ config_vars, ...over }), {
      'idempotency-key': newId(),
    })
  const { body, headers } = await create({})
  await tenant.owner.get(`${headers.get('operation-location')}?wait=60`)
  const id = String(body['id'])
  expect((await engine.only(id)).Config.Env).toContain(`PASSWORD=${configVar}`)
  for (const over of [
    { image: 'localhost:1/none' },
    { command: ['no-such-command'] },
    { colour: configVar },
    { name: configVar.toUpperCase() },
  ]) {
    const failed = await create(over)
    const path = failed.headers.get('operation-location')
    if (path) await tenant.owner.get(`${path}?wait=60`)
  }
  await engine.remove(id) // and once more when the repair recreates it
  await (await tenant.containers.create({ config_vars, start: false })).operation.end()
}

/** User data of a VM. The VMs' own tests check the files of its host. */
async function useUserData(): Promise<void> {
  plantAll([userData])
  const body = smallVm({ start: false, user_data: `#cloud-config\npassword: ${userData}\n` })
  const create = (over: object = {}) =>
    tenant.owner.ask('POST', '/api/v1/vms', { ...body, ...over }, { 'idempotency-key': newId() })
  const { status, headers } = await create()
  expect(status).toBe(202)
  await tenant.owner.get(`${headers.get('operation-location')}?wait=60`)
  expect(await create()).toMatchObject({ status: 409 }) // the name is taken
  expect(await create({ image: userData })).toMatchObject({ status: 422 })
}

let deployServer: string

/** The environment of an application, in a deployment that fails too. */
async function useEnvs(): Promise<void> {
  const [first, second] = envValues
  const server = await tenant.owner.deployServers.make()
  deployServer = server.id
  await loadAppImages(tenant.owner, server)
  const apps = applicationsOf(tenant.owner, server.id)
  const { id } = await apps.make({ envs: { PASSWORD: first } })
  expect(await apps.setEnvs(id, { PASSWORD: second })).toMatchObject({ status: 200 })
  await (await apps.restart(id)).operation.success()
  const failing = await apps.deploy(id, { tag: 'crash' })
  expect(await failing.operation.end()).toMatchObject({ state: 'failed' })
  expect(await apps.envs(id)).toEqual({ PASSWORD: second })
}
