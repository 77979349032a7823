import { afterAll, expect, test } from '@jest/globals'
import { closeConsoles } from '../support/console.ts'
import { eventually } from '../support/eventually.ts'
import { outputOf } from '../support/microvms.ts'
import { platform, startAll } from '../support/platform.ts'
import { makeTenant } from '../support/tenants.ts'

afterAll(startAll)
afterAll(closeConsoles)

test('a microVM reports the result of its health check, also after host worker restarts, and in its feed', async () => {
  const tenant = await makeTenant()
  const { id, body, operation } = await tenant.microvms.create({
    command: ['sh', '-c', 'sleep 2; touch /well; exec sleep 3600'],
    health_check: { command: ['test', '-e', '/well'], interval_sec: 1, timeout_sec: 30, retries: 3 },
  })
  expect(body).toMatchObject({ health: 'none', health_check: { retries: 3, start_period_sec: 0 } })
  await operation.success()
  const is = (health: string) => eventually(async () => (await tenant.microvms.get(id))['health'] === health)
  const told = (kind: string) =>
    eventually(async () => (await tenant.microvms.activity(id)).some((event) => event['kind'] === kind))
  await is('healthy')

  await platform.kill('host')
  await platform.start('host')
  await outputOf(tenant, id, 'rm /well')
  await is('unhealthy')
  await told('unhealthy')
  // As with containers, the failure is only recorded: nothing repairs it.
  expect(await tenant.microvms.get(id)).toMatchObject({ status: 'running', restart_count: 0 })

  await (await tenant.microvms.suspend(id)).operation.success()
  await (await tenant.microvms.resume(id)).operation.success()
  expect(await tenant.microvms.get(id)).toMatchObject({ health: 'unhealthy' })
  await outputOf(tenant, id, 'touch /well')
  await is('healthy')
  await told('healthy')
  await (await tenant.microvms.delete(id)).operation.success()
})
