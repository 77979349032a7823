import { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { beforeAll, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import type { Operation } from '../../api/operation.ts'
import { applicationRecordsOf } from '../support/application-records.ts'
import { declared } from '../support/declared.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Lists read up to 100 documents: large fields that they do not show stay in the database.

let tenant: TestTenant
let records: Awaited<ReturnType<typeof applicationRecordsOf>>

beforeAll(async () => {
  tenant = await makeTenant()
  records = await applicationRecordsOf(tenant.id)
})

test.each([
  ['applications', ['envs_sealed']],
  ['deployments', ['envs_sealed', 'log']],
  ['builds', ['secrets_sealed']],
  ['services', ['revision_sealed', 'next_sealed', 'former_sealed']],
  ['containers', ['config_vars_sealed']],
])('the list of %s does not read what it does not show: %p', async (collection, fields) => {
  const path =
    collection === 'containers' ? '/api/v1/containers' : `/api/v1/deploy-servers/{id}/${collection}`
  const list = declared.find(({ name }) => name === `GET ${path}`) as Operation
  const read: unknown[] = []
  mongoose.set('debug', (from: string, method: string, _: unknown, options: { projection?: object }) => {
    if (from === collection && method === 'find') read.push(options.projection)
  })
  const response = new ServerResponse(new IncomingMessage(new Socket()))
  try {
    await list.handle({
      caller: { tenant_id: tenant.id },
      params: { id: records.server._id },
      query: list.query?.parse({}),
      http: { response },
    } as unknown as Parameters<Operation['handle']>[0])
  } finally {
    mongoose.set('debug', false)
    response.emit('close')
  }
  expect(read).toEqual([expect.objectContaining(Object.fromEntries(fields.map((field) => [field, 0])))])
})
