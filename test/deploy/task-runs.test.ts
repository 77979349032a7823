import { beforeAll, expect, test } from '@jest/globals'
import { applicationRecordsOf } from '../support/application-records.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// The runs of scheduled tasks that are kept. The deploy server is only a record.

let tenant: TestTenant
let records: Awaited<ReturnType<typeof applicationRecordsOf>>
const at = (path: string): string => `/api/v1/deploy-servers/${records.server._id}/${path}`

beforeAll(async () => {
  tenant = await makeTenant()
  records = await applicationRecordsOf(tenant.id)
})

test('a run of a scheduled task by hand leaves the last 100', async () => {
  const application = await records.application()
  const task = await records.task(application)
  await records.runs(task, 105)
  const path = at(`applications/${application._id}/scheduled-tasks/${task._id}`)
  const { id, operation } = await tenant.owner.begin('POST', `${path}/run`)
  await operation.end()
  const { items, total } = await tenant.owner.get<{ items: { id: string }[]; total: number }>(
    `${path}/runs?limit=1`,
  )
  expect([items[0]?.id, total]).toEqual([id, 100])
})
