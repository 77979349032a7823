import { expect } from '@jest/globals'
import mongoose from 'mongoose'
import type { Answer, Json } from './client.ts'
import type { TestTenant } from './tenants.ts'

const count = (name: string, filter: object) => mongoose.connection.collection(name).countDocuments(filter)

/** The answer to a request with mistakes in these fields. */
export const mistakeAt = (...pointers: string[]) => ({
  status: 422,
  body: {
    code: 'invalid_input',
    errors: expect.arrayContaining(pointers.map((pointer) => expect.objectContaining({ pointer }))),
  },
})

/** The records that a refused request of this tenant could have changed. */
async function records(tenant: TestTenant): Promise<Json> {
  const mine = { tenant_id: tenant.id }
  return {
    containers: await count('containers', mine),
    operations: await count('operations', mine),
    users: await count('users', mine),
    holds: await tenant.holds(),
  }
}

/** Sends a request that must be refused, with a problem document and without a change. */
export const refusing =
  (tenant: () => TestTenant) =>
  async (send: () => Promise<Answer>): Promise<Answer> => {
    const before = await records(tenant())
    const { status, headers, body } = await send()
    expect(status).toBeGreaterThanOrEqual(400)
    expect(headers.get('content-type')).toMatch(/^application\/problem\+json/)
    expect(body).toMatchObject({
      type: `urn:keelson:problem:${String(body['code'])}`,
      title: expect.any(String),
      status,
      code: expect.stringMatching(/^[a-z_]+$/),
      request_id: headers.get('x-request-id'),
    })
    expect(JSON.stringify(body)).not.toMatch(/node_modules|\.ts:\d|Mongo|at async/)
    expect(await records(tenant())).toEqual(before)
    return { status, headers, body }
  }
