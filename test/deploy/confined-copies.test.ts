import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import type { DatabaseDocument } from '../../models/deploy/databases.ts'
import { ensureDeployCredentials, openDeployCredentials } from '../../models/identity/deploy-credentials.ts'
import { archived, at, baseAt, removeArchives } from '../support/archive-records.ts'
import { Client } from '../support/client.ts'
import { databaseRecordsOf } from '../support/database-records.ts'
import { deployRecordsOf } from '../support/deploy-records.ts'
import { atEndOfFile } from '../support/end-of-file.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// What the credentials of a deploy server can begin databases with, on records: its own copies, not those of another one.

let tenant: TestTenant
let others: ReturnType<typeof databaseRecordsOf>
let own: DatabaseDocument
let server_id: string
let confined: Client
beforeAll(async () => {
  tenant = await makeTenant()
  atEndOfFile(() => removeArchives(tenant.id))
  others = databaseRecordsOf(tenant.id) // of a deploy server without a record
  const server = await deployRecordsOf(tenant.id).server([], { rescued_at: new Date() })
  server_id = server._id
  own = await others.database({ deploy_server_id: server_id })
  await ensureDeployCredentials(server)
  confined = new Client((await openDeployCredentials(server))?.api_token ?? '')
})

const create = async (caller: Client, body: object) => {
  const asked = { name: `row-${newId().slice(-12)}`, ...body }
  return answerTo(await caller.ask('POST', `/api/v1/deploy-servers/${server_id}/databases`, asked))
}
const restore = async (caller: Client, body: object) =>
  answerTo(await caller.ask('POST', `/api/v1/deploy-servers/${server_id}/databases/${own._id}/restore`, body))
const answerTo = ({ status, body }: { status: number; body: Record<string, unknown> }) => ({
  status,
  body: { ...body, request_id: '' },
})

test('a deploy server’s credentials find no backup of another deploy server', async () => {
  const whole = await others.execution(await others.database())
  const failed = await others.execution(await others.database(), { status: 'failed' })
  for (const begin of [create, restore]) {
    const unknown = await begin(confined, { execution_id: newId() })
    expect(unknown).toMatchObject({ status: 422, body: { errors: [{ message: 'is not a backup' }] } })
    for (const { _id: execution_id } of [whole, failed])
      expect(await begin(confined, { execution_id })).toEqual(unknown)
    // Its status is looked at, so it was found.
    expect(await begin(tenant.owner, { execution_id: failed._id })).toMatchObject({ status: 409 })
  }
  const { _id } = await others.execution(own, { status: 'failed', deploy_server_id: server_id })
  expect(await create(confined, { execution_id: _id })).toMatchObject({ status: 409 })
})

test('a deploy server’s credentials find no moment of a database of another deploy server', async () => {
  const { database, archive } = await archived(others, 3)
  await baseAt(others, database, archive, 1)
  const late = { database_id: database._id, at: at(100).toISOString() }
  const unknown = await create(confined, { ...late, database_id: newId() })
  expect(unknown).toMatchObject({ status: 422, body: { errors: [{ message: 'there is no moment yet' }] } })
  expect(await create(confined, late)).toEqual(unknown)
  expect(await create(confined, { ...late, at: at(20).toISOString() })).toEqual(unknown)
  expect(await create(tenant.owner, late)).toMatchObject({
    body: { errors: [{ message: expect.stringContaining('must be within') }] },
  })
})
