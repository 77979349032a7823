import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { temporalClient } from '../../lib/temporal.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { ConnectorLogin } from '../../models/connectors/logins.ts'
import { connectorSchedule } from '../../worker/schedules.ts'
import { connectorsOf } from '../support/clients/connectors.ts'
import { eventually } from '../support/eventually.ts'
import { platform } from '../support/platform.ts'
import { logIn } from '../support/providers/browser-login.ts'
import { startGitlab } from '../support/providers/git-hosts.ts'
import { stackSettings } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Logins and refreshes whose process is killed.

const temporal = temporalClient(stackSettings())
let gitlab: Awaited<ReturnType<typeof startGitlab>>
let tenant: TestTenant
let connectors: ReturnType<typeof connectorsOf>

beforeAll(async () => {
  gitlab = await startGitlab()
  tenant = await makeTenant()
  connectors = connectorsOf(tenant.owner)
})
afterAll(async () => {
  await gitlab?.close()
  await temporal.connection.close()
})

const hasten = (login_id: string) =>
  ConnectorLogin.updateOne({ _id: login_id, tenant_id: tenant.id }, { $set: { next_poll_at: new Date() } })

test('a device login goes on after the API was killed, at its slower pace', async () => {
  const { body } = await connectors.startDevice({ provider: 'gitlab' })
  const login_id = String(body['login_id'])
  gitlab.slowDown(1)
  await hasten(login_id)
  expect(await connectors.pollDevice(login_id)).toMatchObject({ body: { status: 'pending' } })
  await platform.restartKilled('api')
  const asked = gitlab.asked('urn:ietf:params:oauth:grant-type:device_code')
  const early = await ConnectorLogin.updateOne(
    { _id: login_id, tenant_id: tenant.id },
    { $set: { next_poll_at: new Date(Date.now() + 60_000) } },
  )
  expect(early.modifiedCount).toBe(1)
  expect(await connectors.pollDevice(login_id)).toMatchObject({ body: { status: 'pending' } })
  expect(gitlab.asked('urn:ietf:params:oauth:grant-type:device_code')).toBe(asked)
  expect(await ConnectorLogin.findOne({ _id: login_id, tenant_id: tenant.id }).lean()).toMatchObject({
    interval_sec: 6,
  })
  await gitlab.approve(String(body['user_code']), 'ada')
  await hasten(login_id)
  expect(await connectors.pollDevice(login_id)).toMatchObject({ body: { status: 'done' } })
})

test('a connector whose worker is killed after the provider has rotated its token must be connected again, and says so', async () => {
  const { body } = await connectors.startOauth({ provider: 'gitlab' })
  const code = await logIn(String(body['authorize_url']))
  const id = String((await connectors.completeOauth({ code })).body['id'])
  const its = { _id: id, tenant_id: tenant.id }
  await Connector.updateOne(its, { $set: { due_at: new Date() } })

  const lost = gitlab.loseNextRefresh()
  await temporal.schedule.getHandle(connectorSchedule).trigger()
  await lost
  await platform.kill('worker')
  expect(await connectors.get(id)).toMatchObject({ status: 'refreshing', version: 1 })
  await Connector.updateOne(its, { $set: { lease_until: new Date() } }) // instead of waiting for its end
  await platform.start('worker')

  const shown = await eventually(async () => {
    const now = await connectors.get(id)
    return now.status === 'reauth_required' && now
  })
  expect(shown).toMatchObject({ version: 1, status_reason: 'GitLab no longer accepts the login' })
  expect(await connectors.activity(id)).toMatchObject([{ kind: 'reauth_required' }])
})
