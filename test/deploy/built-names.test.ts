import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Build, type BuildDocument } from '../../models/deploy/builds.ts'
import { noteImagesGone, takeImage } from '../../models/deploy/built-images.ts'
import type { DeploymentDocument } from '../../models/deploy/deployments.ts'
import { applicationRecordsOf } from '../support/application-records.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Names of images that were built on a deploy server, which is only a record here.

let tenant: TestTenant
let records: Awaited<ReturnType<typeof applicationRecordsOf>>
let apps: ReturnType<typeof applicationsOf>
const at = (path: string): string => `/api/v1/deploy-servers/${records.server._id}/${path}`

beforeAll(async () => {
  tenant = await makeTenant()
  records = await applicationRecordsOf(tenant.id)
  apps = applicationsOf(tenant.owner, records.server._id)
})

const take = (image: string, tag: string, over: Partial<DeploymentDocument> = {}) =>
  takeImage({ tenant_id: tenant.id, deploy_server_id: records.server._id, image, tag, ...over })

describe('an image whose name was built on the deploy server', () => {
  let kept: BuildDocument
  beforeAll(async () => {
    kept = await records.build({ image: 'acme/app', tag: 'v1' })
    await records.build({ image: 'acme/app', tag: 'v0', image_state: 'gone' })
    await records.build({ image: 'acme/failed', status: 'failed', image_state: 'none', digest: null })
    await records.build({ image: 'acme/elsewhere', deploy_server_id: newId() })
  })

  const removed = { status: 409, body: { code: 'image_removed' } }
  const unbuilt = {
    status: 422,
    body: {
      code: 'invalid_input',
      errors: [{ pointer: '/tag', message: expect.stringMatching(/neither built/) }],
    },
  }
  const refusals: [string, string, string, object][] = [
    ['was removed', 'acme/app', 'v0', removed],
    ['was never built', 'acme/app', 'v9', unbuilt],
    ['no build has made', 'acme/failed', 'v1', unbuilt],
  ]

  test.each(refusals)('is not taken from another registry if its tag %s', async (_, image, tag, refusal) => {
    const { _id } = await records.application({ image, tag: 'former' })
    expect(await tenant.owner.ask('POST', at(`applications/${_id}/deploy`), { tag })).toMatchObject(refusal)
    expect((await apps.get(_id)).tag).toBe('former')
    const body = { name: `app-${newId().slice(-12)}`, image, tag }
    expect(await tenant.owner.ask('POST', at('applications'), body)).toMatchObject(refusal)
  })

  test.each([
    ['v0', removed],
    ['v9', { ...unbuilt, body: { errors: [{ pointer: '/docker_compose' }] } }],
  ])('is not taken from another registry by a service, with the tag %s', async (tag, refusal) => {
    const { _id } = await records.service('services: { web: { image: "demo:v1" } }', {})
    const body = { docker_compose: `services: { web: { image: "acme/app:${tag}" } }`, dry_run: true }
    expect(await tenant.owner.ask('PATCH', at(`services/${_id}`), body)).toMatchObject(refusal)
  })

  test('is taken by a tag that has a build or was pushed', async () => {
    expect(await take('acme/app', 'v1')).toEqual({ build_id: kept._id, digest: kept.digest })
    const pushed = await records.build({ image: 'acme/pushed', artifact_id: null, status: 'creating' })
    expect(await take('acme/pushed', 'v1')).toMatchObject({ build_id: pushed._id })
  })

  test.each([
    ['a name that was never built', 'nginx'],
    ['a name with a registry', 'docker.io/acme/app'],
    ['a name that was built on another deploy server', 'acme/elsewhere'],
  ])('does not hold back %s', async (_, image) => {
    expect(await take(image, 'v9')).toBeNull()
  })

  test('does not hold back a release of the public image that served before', async () => {
    expect(await take('acme/app', 'v9', { built: null, kind: 'deploy' })).toBeNull()
  })

  test('can be stopped, but a stop is not released, if its tag was removed', async () => {
    const { _id } = await records.application({ image: 'acme/app', tag: 'v0' })
    const stop = await apps.stop(_id)
    await stop.operation.end()
    const body = { deployment_id: stop.id }
    expect(await tenant.owner.ask('POST', at(`applications/${_id}/deploy`), body)).toMatchObject(removed)
  })

  test('is known for good, also when its record is older than the 200 that are kept', async () => {
    const lost = await records.build({ image: 'lost', image_state: 'gone', created_at: new Date(0) })
    const { server } = records
    const failed = { status: 'failed', image_state: 'none', digest: null } as const
    for (let n = 0; n < 201; n++) await records.build({ image: 'failing', ...failed })
    await noteImagesGone(server, [])
    const its = { tenant_id: tenant.id, deploy_server_id: server._id }
    expect(await Build.countDocuments({ ...its, image: 'failing' })).toBeLessThan(201)
    expect(await Build.exists({ ...its, _id: lost._id })).toBeTruthy()
    await expect(take('lost', 'v2')).rejects.toMatchObject({ status: 422 })
  })
})
