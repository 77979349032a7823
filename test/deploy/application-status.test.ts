import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { seenApplications } from '../../models/deploy/application-status.ts'
import { Application, type ApplicationDocument } from '../../models/deploy/applications.ts'
import { applicationRecordsOf } from '../support/application-records.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// The status and the URL of applications by what hosts have told. The deploy server is only a record.

let tenant: TestTenant
let records: Awaited<ReturnType<typeof applicationRecordsOf>>

beforeAll(async () => {
  tenant = await makeTenant()
  records = await applicationRecordsOf(tenant.id)
})

const ago = (sec: number): Date => new Date(Date.now() - sec * 1000)
async function seen({ _id }: ApplicationDocument) {
  const application = await Application.findOne({ _id, tenant_id: tenant.id }).lean()
  const found = await seenApplications(records.server, [application as ApplicationDocument], 'localhost')
  return found.get(_id)
}

describe('the status and the URL of an application', () => {
  beforeAll(() => records.balancer())

  test('are those of the release that serves, if the next one has no port', async () => {
    const application = await records.application({ port: null })
    await records.release(application, { port: 3000 })
    await records.route(application)
    const url = expect.stringMatching(/^http:\/\/.*:8080$/)
    expect(await seen(application)).toEqual({ status: 'running', url })
  })

  test('are those of the release that serves, if the next one has a port', async () => {
    const application = await records.application({ port: 80 })
    await records.release(application, { port: null, places: [records.place()] })
    expect(await seen(application)).toEqual({ status: 'running', url: null })
  })

  test('are those of the next release before the first one', async () => {
    expect(await seen(await records.application({ port: 80 }))).toMatchObject({
      status: 'created',
      url: expect.any(String),
    })
    expect(await seen(await records.application({ port: null }))).toEqual({ status: 'created', url: null })
  })

  test.each([
    ['running', 'each was found running lately', [5, 20]],
    ['running:degraded', 'one was', [5, 60]],
    ['unhealthy', 'none was', [60, null]],
  ])('are %s without a port if of its replicas %s', async (status, _, told) => {
    const application = await records.application({ port: null })
    const places = told.map(() => records.place())
    await records.release(application, { port: null, places, since: ago(120) })
    for (const [index, { service_id }] of places.entries()) {
      const sec = told[index]
      if (typeof sec === 'number') await records.sample(application._id, service_id, ago(sec))
    }
    // Of a former release.
    await records.sample(application._id, newId(), ago(5))
    expect(await seen(application)).toEqual({ status, url: null })
  })
})
