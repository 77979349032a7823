import { expect, test } from '@jest/globals'
import { z } from 'zod'
import type { Operation, UserCaller } from '../../api/operation.ts'
import { PermissionDenied } from '../../lib/problem.ts'
import { newId } from '../../lib/ids.ts'
import { tenantPermissions } from '../../models/identity/roles.ts'
import { declared } from '../support/declared.ts'

// A tenant that chooses a host chooses its neighbours there. Each operation that takes a host refuses it from who is no
// operator, before it looks at anything else.

/** The field of the body in which a caller says where to. */
function hostField({ body }: Operation): 'host_id' | 'target_host_id' | null {
  if (!body) return null
  const { properties = {} } = z.toJSONSchema(body, { io: 'input', unrepresentable: 'any' })
  return (['host_id', 'target_host_id'] as const).find((name) => name in properties) ?? null
}

const owner: UserCaller = {
  kind: 'user',
  id: newId(),
  tenant_id: newId(),
  email: 'owner@example.com',
  permissions: new Set(tenantPermissions),
  token: 'none',
}

const choosing = declared.flatMap((operation) => {
  const field = hostField(operation)
  return field && !operation.path.startsWith('/internal/') ? [{ ...operation, field }] : []
})

test('instances, disks and replicas of load balancers can be told a host', () => {
  expect(choosing.map(({ name }) => name)).toEqual(
    expect.arrayContaining([
      'POST /api/v1/containers',
      'POST /api/v1/microvms',
      'POST /api/v1/vms',
      'POST /api/v1/disks',
      'POST /api/v1/disks/{id}/migrate',
      'POST /api/v1/microvms/{id}/reschedule',
      'POST /api/v1/load-balancers/{id}/reschedule',
    ]),
  )
})

test.each(choosing)('$name lets only operators choose a host', async ({ field, ...operation }) => {
  const asked = { caller: owner, params: { id: newId() }, body: { [field]: newId() }, query: {} }
  await expect(async () => operation.handle(asked as never)).rejects.toThrow(
    new PermissionDenied('platform:hosts'),
  )
})
