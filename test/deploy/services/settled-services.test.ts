import { expect, test } from '@jest/globals'
import { makeServiceActivities } from '../../../activities/deploy/services.ts'
import { newId } from '../../../lib/ids.ts'
import { sealRevision, Service } from '../../../models/deploy/services.ts'
import { endOperation, Operation } from '../../../models/operations.ts'
import { applicationRecordsOf } from '../../support/application-records.ts'
import { makeTenant } from '../../support/tenants.ts'

// What a service has once a change of it is settled. The deploy server is only a record.

test('a change that fails after it was settled leaves the service with the builds that it runs', async () => {
  const { id: tenant_id } = await makeTenant()
  const records = await applicationRecordsOf(tenant_id)
  const { _id, name } = await records.service('', {})
  const [former, next, operation_id] = [newId(), newId(), newId()]
  const containers = [{ name: 'web', ports: [], built: { build_id: next } }]
  const plan = { containers, networks: [], volumes: [] } as never
  const next_sealed = await sealRevision(tenant_id, { text: '', envs: {}, generated: {}, plan })
  await Service.updateOne(
    { _id, tenant_id },
    { $set: { next_sealed, builds: [former, next], operation_id, status: 'updating' } },
  )
  await new Operation({
    _id: operation_id,
    tenant_id,
    resource_kind: 'service',
    resource_id: _id,
    resource_name: name,
    verb: 'update',
    state: 'running',
    open: true,
    workflow_id: newId(),
    before: { status: 'running', next_sealed: '-', builds: [former] },
  }).save()

  await makeServiceActivities({ domain: 'apps.example.com' }).settleService(_id)
  const error = { type: 'about:blank', title: 'Too many routes', status: 409, code: 'too_many_routes' }
  await endOperation(operation_id, { state: 'failed', error })
  expect(await Service.findOne({ _id, tenant_id }).lean()).toMatchObject({
    status: 'running',
    next_sealed: '-',
    builds: [next],
  })
})
