import { beforeAll, describe, expect, test } from '@jest/globals'
import { Application, type ApplicationDocument, openEnvs } from '../../models/deploy/applications.ts'
import { applicationRecordsOf } from '../support/application-records.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// The bounds of environment variables that several requests set. The deploy server is only a record.

let tenant: TestTenant
let records: Awaited<ReturnType<typeof applicationRecordsOf>>
let apps: ReturnType<typeof applicationsOf>
const at = (path: string): string => `/api/v1/deploy-servers/${records.server._id}/${path}`

beforeAll(async () => {
  tenant = await makeTenant()
  records = await applicationRecordsOf(tenant.id)
  apps = applicationsOf(tenant.owner, records.server._id)
})

const varsOf = (count: number, prefix: string, value = 'x'): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}_${index}`, value]))

const tooMany = (words: string) => ({
  status: 422,
  body: { code: 'invalid_input', errors: [{ pointer: '/envs', message: expect.stringContaining(words) }] },
})

describe('the environment variables of an application', () => {
  test.each([
    ['200', varsOf(150, 'A'), varsOf(51, 'B'), '200 config vars'],
    [
      '256 KiB',
      varsOf(7, 'A', 'x'.repeat(32_000)),
      { B: 'x'.repeat(32_000), C: 'x'.repeat(16_000) },
      '256 KiB',
    ],
  ])('are at most %s together, however many requests set them', async (_, envs, more, words) => {
    const application = await records.application({ envs })
    expect(await apps.setEnvs(application._id, more)).toMatchObject(tooMany(words))
    const after = await Application.findOne({ _id: application._id, tenant_id: tenant.id }).lean()
    expect(await openEnvs(after as ApplicationDocument)).toEqual(envs)
    expect((await apps.setEnvs(application._id, { A_0: 'y' })).status).toBe(200)
  })

  test('can be removed if they are too many', async () => {
    const { _id } = await records.application({ envs: varsOf(210, 'A') })
    expect(await apps.setEnvs(_id, { A_0: 'y' })).toMatchObject(tooMany('200 config vars'))
    expect((await tenant.owner.ask('DELETE', at(`applications/${_id}/envs/A_0`))).status).toBe(204)
  })
})

test('the variables of a service are at most 200 together, and can be removed if they are more', async () => {
  const text = 'services: { web: { image: "demo:v1" } }'
  const { _id } = await records.service(text, varsOf(210, 'A'))
  const change = (envs: object) => tenant.owner.ask('PATCH', at(`services/${_id}`), { envs, dry_run: true })
  expect(await change({ B: 'x' })).toMatchObject(tooMany('200 config vars'))
  expect((await change({ A_0: null })).status).toBe(200)
})
